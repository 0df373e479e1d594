"""Power loss at every moment: what was acknowledged is there, nothing is invented, no crash is called corrupt."""

from __future__ import annotations

import random

import pytest

from tests.support.bare_writer import FOLDER, BareWriter, group, plain
from tests.support.events import event_of
from tests.support.faulty_env import FaultyEnv
from tests.support.lost_seals import lost_seals
from trajlake.runtime.env import make_folder
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.reader import list_segments, read_segment
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event


class Witness:
    """Runs one writer through many lives and, at every change of the disk, tries power losses on copies of it."""

    def __init__(self, seed: int, *, sync_works: bool = True) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.env = FaultyEnv(seed, sync_works=sync_works)
        self.offered: list[Event] = []
        self.acknowledged = 0
        self.images = 0
        make_folder(self.env, FOLDER)
        self.env.before = self.look

    def look(self, operation: str, path: str) -> None:
        """Build an image of this moment; sometimes break off its recovery as well, and recover once more."""
        if self.random.random() > 0.35:
            return
        seed = self.random.randrange(2**32)
        place = f"seed {self.seed}, image {self.images} ({seed}), before call {self.env.calls} ({operation} {path})"
        image = self.env.crash_image(None if self.random.random() < 0.2 else seed)
        if self.random.random() < 0.4:
            image = self.break_off_recovery(image)
        self.check(image, place)

    def break_off_recovery(self, image: FaultyEnv) -> FaultyEnv:
        calls = self.random.randint(1, 14)
        deeper: list[FaultyEnv] = []

        def stop(_operation: str, _path: str) -> None:
            if image.calls >= calls and not deeper:
                deeper.append(image.crash_image(self.random.randrange(2**32)))

        image.before = stop
        BareWriter(image)
        return deeper[0] if deeper else image.crash_image(None)

    def check(self, image: FaultyEnv, place: str) -> None:
        self.images += 1
        if self.env.sync_works:
            assert lost_seals(image, FOLDER) == [], f"{place}: a crash is called the damage of a SEAL"
        writer = BareWriter(image)
        found = writer.events()
        assert len(found) >= self.acknowledged, f"{place}: {self.acknowledged} acknowledged, {len(found)} found"
        assert plain(found) == plain(self.offered[: len(found)]), place
        assert [event.lsn for event in found] == list(range(len(found))), place
        assert ends(image) <= {"sealed"}, f"{place}: a segment that counts as sealed is not whole"
        writer.write(event_of("after", 0))
        assert plain(writer.events()) == [*plain(found), *plain([event_of("after", 0)])], place

    def live(self) -> None:
        """One life: recover, write some batches, perhaps close; then die by SIGKILL or power loss."""
        writer = BareWriter(self.env)
        self.offered = writer.events()
        assert len(self.offered) >= self.acknowledged, f"seed {self.seed}: lost at a real crash"
        for _ in range(self.random.randint(1, 6)):
            batch = [self.next_event() for _ in range(self.random.choice([1, 1, 2, 5]))]
            self.offered += batch
            writer.write(*batch)
            self.acknowledged = len(self.offered)
            if self.random.random() < 0.15:
                writer.chain.seal()
        if self.random.random() < 0.3:
            writer.close()
        sync_works = self.env.sync_works
        self.env.before = lambda _operation, _path: None
        if self.random.random() < 0.5:
            self.env = self.env.process_death()
        else:
            self.env = self.env.crash_image(self.random.choice([None, self.random.randrange(2**32)]))
        self.env.sync_works = sync_works
        self.env.before = self.look

    def next_event(self) -> Event:
        size = self.random.choice([20, 100, 100, 900, 2500])
        return event_of(f"t{self.random.randrange(4)}", len(self.offered) * 10 + self.random.randrange(10), size=size)


def run_images(count: int, first_seed: int, *, sync_works: bool = True) -> int:
    images, seed = 0, first_seed
    while images < count:
        witness = Witness(seed, sync_works=sync_works)
        for _ in range(4):
            witness.live()
        images += witness.images
        seed += 1
    return images


def test_every_acknowledged_event_survives_two_thousand_power_losses() -> None:
    assert run_images(2000, 1) >= 2000


@pytest.mark.soak
def test_every_acknowledged_event_survives_twenty_thousand_power_losses() -> None:
    assert run_images(20_000, 1_000_000) >= 20_000


def test_a_barrier_in_a_call_of_its_own_keeps_the_same_promise() -> None:
    env = FaultyEnv(1)
    env.one_call_barrier = False
    writer = BareWriter(env)
    events = [event_of("t", n, size=300) for n in range(20)]
    for count, event in enumerate(events, 1):
        writer.write(event)
        for seed in (None, count):
            assert plain(BareWriter(env.crash_image(seed)).events()) == plain(events[:count])


def test_a_seal_cut_short_by_power_loss_is_never_taken_for_a_whole_one() -> None:
    """Sizes that would let the SEAL end exactly where the file ends, before it is cut."""
    options = WriterOptions(segment_size_min_bytes=16_384, segment_size_max_bytes=16_384)
    ends_at_the_end = 0
    for size in range(1200, 1500, 8):
        env = FaultyEnv(size)
        writer = BareWriter(env, options=options)
        # So many that the SEAL lies in several sectors, which a power loss keeps one by one.
        first = [event_of("t", n, size=24) for n in range(30)]
        second = [*(event_of("u", n, size=24) for n in range(30)), event_of("u", 30, size=size)]
        events = first + second
        writer.chain.write_batch([group(first)])
        writer.chain.write_batch([group(second)])
        active = writer.chain._active
        assert active is not None
        ends_at_the_end += active.offset + active.index.seal_size() == active.header.size_bytes
        images: list[FaultyEnv] = []
        env.before = lambda _operation, _path, env=env, images=images: images.extend(  # type: ignore[misc]
            env.crash_image(seed) for seed in range(10)
        )
        writer.chain.seal()
        for image in images:
            assert plain(BareWriter(image).events()) == plain(events), f"payload of {size} bytes"
    assert ends_at_the_end == 0


def test_a_seal_that_recovery_writes_is_never_left_half_in_a_file_that_is_cut() -> None:
    env = FaultyEnv(1)
    options = WriterOptions(segment_size_min_bytes=32_768, segment_size_max_bytes=32_768)
    writer = BareWriter(env, options=options)
    events = [event_of("t", n, size=24) for n in range(61)]
    writer.chain.write_batch([group(events[:60])])
    writer.chain.write_batch([group(events[60:])])
    dead = env.process_death()
    images: list[FaultyEnv] = []
    dead.before = lambda _operation, _path: images.extend(dead.crash_image(seed) for seed in range(20))
    BareWriter(dead)
    assert len(images) > 150
    for image in images:
        assert plain(BareWriter(image).events()) == plain(events)
        assert ends(image) == {"sealed"}


def ends(machine: FaultyEnv) -> set[str]:
    """How the segments end that can be shipped: those that count as sealed and cut."""
    found = [segment for segment in list_segments(machine, FOLDER) if segment.is_sealed]
    return {read_segment(machine, segment.path).end for segment in found}


def test_without_the_barrier_acknowledged_events_are_lost() -> None:
    with pytest.raises((AssertionError, SegmentCorrupt)):
        run_images(200, 1, sync_works=False)
