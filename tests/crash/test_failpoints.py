"""A real process kills itself at each of its calls on the disk, and at each dispatch; what it had told is read back.

Properties, after a new process took the root over:

1. every event told is there, in order, unchanged, and no other than was written;
2. every effect that happened has its intent;
3. every blob told is whole, the lease told stands, the mail told waits;
4. no segment is corrupt: a kill is only a crash.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tests.crash.failpoint_process import EVENTS_EACH, OPTIONS, SIZE_BYTES, TRAJECTORIES, live
from tests.support.bare_writer import plain
from tests.support.events import event_of
from tests.support.killing import CALLS, KillingEnv, dies_at
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events

FAILPOINTS_MIN = 150
"""Calls in one life, about; the loops below fail if they end much earlier."""


def killed_at(folder: Path, at: int, *, half: bool = False, one_call_barrier: bool = True) -> bool:
    """One life that ends at call `at`; checks what it left. False if the life was over before."""
    folder.mkdir()
    told, effects = _file(folder / "told"), _file(folder / "effects")
    root_path = str(folder / "journal")
    died = dies_at(at, lambda env: live(env, root_path, told, effects), half=half, one_call_barrier=one_call_barrier)
    os.close(told)
    os.close(effects)
    check(folder, f"killed at call {at}{', half written' if half else ''}")
    return died


def _file(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)


def check(folder: Path, place: str) -> None:
    lines = [line.split() for line in (folder / "told").read_text().splitlines()]
    if not (folder / "journal" / "root.json").exists():
        assert not lines, place
        return
    root = Root.open(folder / "journal", create=False)
    with root.claim_writer(OPTIONS):
        found: dict[str, list] = {trajectory_id: [] for trajectory_id in TRAJECTORIES}
        for writer in root.writers():
            for event in iter_events(REAL_ENV, root.writer_folder(writer)):
                found[event.trajectory_id].append(event)
    for trajectory_id, events in found.items():
        as_written = [event_of(trajectory_id, number, size=SIZE_BYTES) for number in range(len(events))]
        assert plain(events) == plain(as_written), place
    for kind, *words in lines:
        match kind:
            case "event":
                assert len(found[words[0]]) > int(words[1]), f"{place}: {words} was acknowledged"
            case "blob":
                assert sha256(root.blobs.get("default", words[0])).hexdigest() == words[0], place
            case "lease":
                record = FileLeaseStore(root.path).read("default", "a")
                assert record is not None, place
                assert record.highest_token >= int(words[0]), place
            case "mail":
                items = FileMailStore(root.path).waiting("default", "a")
                assert words[0] in [item.id for item in items], place
    for effect in (folder / "effects").read_text().split():
        assert len(found["a"]) > int(effect), f"{place}: effect {effect} happened without its intent"


def test_a_life_has_every_kind_of_failpoint(tmp_path: Path) -> None:
    env = KillingEnv(0)
    told, effects = _file(tmp_path / "told"), _file(tmp_path / "effects")
    live(env, str(tmp_path / "journal"), told, effects)
    os.close(told)
    os.close(effects)
    check(tmp_path, "not killed")
    assert env.calls >= FAILPOINTS_MIN
    assert {"dispatch", "pwrite", "pwrite_durably", "fdatasync", "truncate", "rename", "link", "unlink"} <= set(
        env.trace
    )
    assert {"mkdir", "fsync_dir"} <= set(env.trace) <= {*CALLS, "dispatch"}
    assert len((tmp_path / "effects").read_text().split()) == EVENTS_EACH


@pytest.mark.parametrize("first", range(1, 17, 2))
def test_what_was_told_is_there_after_a_kill_at_a_sample_of_calls(tmp_path: Path, first: int) -> None:
    for at in (first, first + 40 + first % 7, first + 90 + first % 5, first + 130):
        killed_at(tmp_path / f"{at}", at, half=at % 2 == 0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("half", "one_call_barrier"), [(True, True), (False, False)])
def test_what_was_told_is_there_after_a_kill_at_every_call(tmp_path: Path, half: bool, one_call_barrier: bool) -> None:
    at = 1
    while killed_at(tmp_path / f"{at}", at, half=half, one_call_barrier=one_call_barrier):
        at += 1
    assert at > FAILPOINTS_MIN
