"""A journal against a plain list, under appends, rotation, disk errors, crashes, take-over and retention."""

from __future__ import annotations

import contextlib
import errno

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.bare_writer import FOLDER, BareWriter, plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import Fault, FaultyEnv
from trajlake.runtime.wal.journal_errors import JournalFailed
from trajlake.runtime.wal.point_read import read_lsn
from trajlake.runtime.wal.reader import iter_events, list_segments, read_trajectory
from trajlake.schemas.envelope import Event

TRAJECTORIES = st.sampled_from(["t0", "t1", "t2"])
SIZES = st.sampled_from([20, 200, 900, 3000])


class JournalMachine(RuleBasedStateMachine):
    """`offered` is the list; its first `acknowledged` events must never be missing, the rest may be.

    1. what is read is a prefix of what was offered, at least as long as what was acknowledged;
    2. lsns are 0, 1, 2 and so on, and stay with their events;
    3. readers by lsn and by trajectory agree with the list;
    4. `dropped` events left by retention, from the front, with whole segments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.env = FaultyEnv(1)
        self.writer = BareWriter(self.env)
        self.offered: list[Event] = []
        self.acknowledged = 0
        self.dropped = 0
        self.failed = False

    @precondition(lambda self: not self.failed)
    @rule(batch=st.lists(st.tuples(TRAJECTORIES, SIZES), min_size=1, max_size=4))
    def append(self, batch: list[tuple[str, int]]) -> None:
        events = [event_of(name, len(self.offered) + i, size=size) for i, (name, size) in enumerate(batch)]
        self.offered += events
        try:
            self.writer.write(*events)
            self.acknowledged = len(self.offered)
        except JournalFailed:
            self.failed = True

    @precondition(lambda self: not self.failed)
    @rule()
    def seal(self) -> None:
        try:
            self.writer.chain.seal()
        except JournalFailed:
            self.failed = True

    @rule(calls=st.integers(1, 6), error=st.sampled_from([errno.EIO, errno.ENOSPC]), short=st.booleans())
    def let_a_coming_call_fail(self, calls: int, error: int, short: bool) -> None:
        self.env.faults[self.env.calls + calls] = Fault(error, short=short)

    @rule()
    def close_and_open(self) -> None:
        with contextlib.suppress(JournalFailed):
            self.writer.close()
        self.reopen(self.env)

    @rule()
    def die_and_open(self) -> None:
        self.reopen(self.env.process_death())

    @rule(seed=st.one_of(st.none(), st.integers(0, 2**32)))
    def lose_power_and_open(self, seed: int | None) -> None:
        self.reopen(self.env.crash_image(seed))

    @rule(seed=st.integers(0, 2**32), calls=st.integers(1, 12))
    def lose_power_during_recovery_and_open(self, seed: int, calls: int) -> None:
        image = self.env.crash_image(seed)
        images: list[FaultyEnv] = []

        def stop(_operation: str, _path: str) -> None:
            if image.calls == calls:
                images.append(image.crash_image(seed + 1))

        image.before = stop
        BareWriter(image)
        self.reopen(images[0] if images else image)

    @rule()
    def drop_the_oldest_sealed_segment(self) -> None:
        first, *rest = list_segments(self.env, FOLDER) or [None]
        last_lsn = None if first is None else first.last_lsn
        if first is not None and rest and last_lsn is not None and last_lsn < self.acknowledged:
            self.env.unlink(first.path)
            self.env.fsync_dir(FOLDER)
            self.dropped = last_lsn + 1

    def reopen(self, env: FaultyEnv) -> None:
        env.faults.clear()
        self.env = env
        self.writer = BareWriter(env)
        self.failed = False
        found = list(iter_events(env, FOLDER))
        self.offered = self.offered[: self.dropped + len(found)]
        assert len(self.offered) >= self.acknowledged
        self.acknowledged = len(self.offered)
        assert self.writer.recovered.next_lsn == len(self.offered)
        assert all(segment.is_sealed for segment in list_segments(env, FOLDER))

    @invariant()
    def what_is_read_is_what_was_offered(self) -> None:
        found = list(iter_events(self.env, FOLDER))
        assert self.dropped + len(found) >= self.acknowledged
        assert [event.lsn for event in found] == list(range(self.dropped, self.dropped + len(found)))
        assert plain(found) == plain(self.offered[self.dropped : self.dropped + len(found)])

    @precondition(lambda self: self.acknowledged > self.dropped)
    @rule(share=st.floats(0, 1))
    def read_one(self, share: float) -> None:
        lsn = self.dropped + int(share * (self.acknowledged - self.dropped - 1))
        event = read_lsn(self.env, FOLDER, lsn)
        assert event is not None
        assert plain([event]) == plain([self.offered[lsn]])

    @rule(name=TRAJECTORIES)
    def read_a_trajectory(self, name: str) -> None:
        found, _ = read_trajectory(self.env, [(FOLDER, 0)], info_of(name).key)
        wanted = [event for event in self.offered[self.dropped : self.acknowledged] if event.trajectory_id == name]
        assert plain(found)[: len(wanted)] == plain(wanted)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=60, stateful_step_count=25)
