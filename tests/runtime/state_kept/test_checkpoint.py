"""Checkpoints as objects: exact, cheap where nothing changed, durable before they are named, removed whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schemas.logs import RandomLog
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.blob_store import BlobStore
from trajlake.runtime.checkpoints.checkpoint import (
    CheckpointError,
    CheckpointFiles,
    Record,
    live_objects,
    load,
    objects_in,
    save,
)
from trajlake.runtime.checkpoints.workspace import Workspace
from trajlake.runtime.env import REAL_ENV
from trajlake.schemas.state import State, fold, initial, state_bytes


def states(seed: int, length: int = 120) -> list[State]:
    """The states of a random log after every tenth of it."""
    events = RandomLog(seed, length).events
    begin = initial(events[0].tenant, events[0].trajectory_id)
    return [fold(begin, events[:cut]) for cut in range(length // 10, length + 1, length // 10)]


class Faulty:
    """A root's blobs and checkpoint files on a disk that loses what was not synced."""

    def __init__(self, env: FaultyEnv) -> None:
        self.env = env
        self.blobs = BlobStore(env, "/root/blobs")
        self.files = CheckpointFiles(env, "/root")


def made() -> Faulty:
    env = FaultyEnv(0)
    env.mkdir("/root")
    env.fsync_dir("/")
    return Faulty(env)


def record_of(state: State, root: str) -> Record:
    return Record(
        tenant=state.tenant, trajectory_id=state.trajectory_id, covers=state.sequence_number, root=root, cause="end"
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_was_saved_comes_back_byte_for_byte(seed: int, tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    before = None
    for state in states(seed):
        written = save(blobs, state, None, None, before)
        before = written.manifest
        loaded = load(blobs, state.tenant, written.root)
        assert state_bytes(loaded.state) == state_bytes(state) == state_bytes(loaded.turn_start)


def test_a_checkpoint_within_a_turn_holds_the_start_of_the_turn_too(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    found = states(3, 200)
    early, late = found[0], found[-1]
    assert early != late
    loaded = load(blobs, late.tenant, save(blobs, late, early, "ab" * 32).root)
    assert (loaded.state, loaded.turn_start, loaded.workspace) == (late, early, "ab" * 32)


def test_an_unchanged_state_costs_its_root_only(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    state = states(4, 400)[-1]
    first = save(blobs, state, None, None)
    again = save(blobs, state, None, None, first.manifest)
    assert again.root == first.root
    assert again.bytes_written < first.bytes_written / 2
    assert again.bytes_whole == first.bytes_whole


def test_everything_is_durable_before_a_checkpoint_may_be_named() -> None:
    at = made()
    state = states(5, 300)[-1]
    written = save(at.blobs, state, None, None)
    at.files.note(record_of(state, written.root))
    after = Faulty(at.env.crash_image(None))
    assert [one.root for one in after.files.of(state.tenant, state.trajectory_id)] == [written.root]
    assert load(after.blobs, state.tenant, written.root).state == state


def test_without_a_working_sync_the_checkpoint_is_gone() -> None:
    env = FaultyEnv(0, sync_works=False)
    env.mkdir("/root")
    at = Faulty(env)
    state = states(5, 300)[-1]
    written = save(at.blobs, state, None, None)
    at.files.note(record_of(state, written.root))
    after = Faulty(at.env.crash_image(None))
    with pytest.raises(CheckpointError):
        load(after.blobs, state.tenant, written.root)


def test_a_missing_or_damaged_part_is_named_never_guessed(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    state = states(6, 200)[-1]
    root = save(blobs, state, None, None).root
    for victim in sorted(objects_in(blobs, state.tenant, root)):
        path = Path(blobs.path(state.tenant, victim))
        whole = path.read_bytes()
        for damaged in (None, whole[:-1], b"{}"):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=root[:12]):
                load(blobs, state.tenant, root)
            path.write_bytes(whole)
    assert load(blobs, state.tenant, root).state == state


def test_old_ones_go_and_the_newest_and_the_pinned_stay() -> None:
    at = made()
    found = states(7, 200)[:8]
    records = []
    for state in found:
        records.append(record_of(state, save(at.blobs, state, None, None).root))
        at.files.note(records[-1])
    at.files.pin(records[1])
    newest = records[5]
    gone = at.files.remove_old(newest.tenant, newest.trajectory_id, newest.covers, keep=2)
    left = at.files.of(newest.tenant, newest.trajectory_id)
    assert gone == [records[0], *records[2:4]]
    assert left == [records[1], *records[4:]], "those after the one that is known to be durable are left alone"
    at.files.unpin(records[1])
    assert at.files.remove_old(newest.tenant, newest.trajectory_id, newest.covers, keep=0) == [records[1], records[4]]


def test_removal_killed_at_every_step_leaves_whole_checkpoints_and_always_the_newest() -> None:
    found = states(8, 150)[:5]
    for kill_at in range(1, 60):
        at = made()
        before = None
        for state in found:
            written = save(at.blobs, state, None, None, before)
            before = written.manifest
            at.files.note(record_of(state, written.root))
        newest = found[-1]
        start = at.env.calls

        def die(_operation: str, _path: str, env: FaultyEnv = at.env, last: int = start + kill_at) -> None:
            if env.calls >= last:
                raise KeyboardInterrupt

        at.env.before = die
        finished = False
        try:
            at.files.remove_old(newest.tenant, newest.trajectory_id, newest.sequence_number, keep=1)
            finished = True
        except KeyboardInterrupt:
            pass
        at.env.before = lambda _operation, _path: None
        for image in (at.env.crash_image(kill_at), at.env.crash_image(None), at.env.process_death()):
            after = Faulty(image)
            left = after.files.of(newest.tenant, newest.trajectory_id)
            assert left[-1].covers == newest.sequence_number, kill_at
            live = live_objects(after.files, after.blobs)[newest.tenant]
            for record in left:
                assert load(after.blobs, record.tenant, record.root).state.sequence_number == record.covers
                assert objects_in(after.blobs, record.tenant, record.root) <= live
        if finished:
            return
    raise AssertionError("removal never came to its end")


def test_objects_that_checkpoints_in_use_need_are_no_garbage_and_the_rest_is(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    files = CheckpointFiles(REAL_ENV, str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    workspace = Workspace(REAL_ENV, str(work))
    records = []
    for at, state in enumerate(states(9, 400)[:4]):
        (work / "f").write_text(f"version {at}")
        tree = workspace.look()
        workspace.save(tree, blobs, state.tenant)
        records.append(record_of(state, save(blobs, state, None, tree.sha256).root))
        files.note(records[-1])
    everything = {name for _, name in blobs.names(records[0].tenant)}
    assert live_objects(files, blobs)[records[0].tenant] == everything
    files.remove_old(records[-1].tenant, records[-1].trajectory_id, records[-1].covers, keep=1)
    live = live_objects(files, blobs)[records[0].tenant]
    assert live == objects_in(blobs, records[-1].tenant, records[-1].root)
    assert live < everything
