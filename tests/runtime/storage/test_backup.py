"""Backup and restore: beside a busy root, killed at any call, damaged, and without ever giving an old token again."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.killing import dies_at
from tests.support.roots import SMALL, Story, lsns, tree
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.leases.generations import take_generation
from trajlake.runtime.leases.lease import Claim, take_lease
from trajlake.runtime.root import Root
from trajlake.runtime.root_log import RootLog
from trajlake.runtime.stores import arbiter, lease_store
from trajlake.runtime.upkeep.backup import MANIFEST, back_up
from trajlake.runtime.upkeep.journal_check import Checked, check_root
from trajlake.runtime.upkeep.restore import restore
from trajlake.runtime.wal.journal_errors import RootError, SegmentCorrupt, WriterLocked
from trajlake.schemas.ids import generation_of, trajectory_key

OLD = 50_000 * b"x"


@pytest.fixture
def story(tmp_path: Path):
    story = Story(tmp_path / "journal")
    story.write("t0", bulk=OLD)
    story.write("open", ended=False, seal=False)
    yield story
    story.close()


def restored(story: Story, tmp_path: Path, name: str = "restored") -> Root:
    back_up(story.root, str(tmp_path / f"{name}.backup"))
    restore(REAL_ENV, str(tmp_path / f"{name}.backup"), str(tmp_path / name))
    return Root.open(tmp_path / name, create=False)


def test_a_restored_root_holds_every_event_and_blob_and_passes_verify(story, tmp_path):
    root = restored(story, tmp_path)
    assert lsns(root) == lsns(story.root)
    assert root.blobs.get("default", story.blobs["t0"])
    checked = Checked()
    assert [finding for finding in check_root(root, checked) if not finding.is_note] == []
    assert (checked.trajectories, checked.blobs) == (2, 1)


def test_no_token_of_the_first_root_is_given_again(story, tmp_path):
    """Also when the first root went on after the backup, with the same arbiter or with none."""
    root = restored(story, tmp_path)
    first_record = story.leases.read("default", "open")
    for trajectory_id in ("open", "t0"):
        key = trajectory_key("default", trajectory_id).hex()
        claim = Claim(tenant="default", trajectory_id=trajectory_id, worker="w2", writer="f" * 32, host="h")
        lease, record = take_lease(lease_store(root), arbiter(root), claim, key)
        assert generation_of(lease.token) > generation_of(first_record.highest_token)
        assert record is not None
        assert lease.token > record.highest_token


def test_a_generation_that_the_landing_gave_to_the_first_root_is_passed_over(tmp_path):
    landing = {"landing": str(tmp_path / "landing")}
    Root.open(tmp_path / "journal", stores=landing)
    story = Story(tmp_path / "journal")
    story.write("open", ended=False)
    back_up(story.root, str(tmp_path / "backup"))
    key = trajectory_key("default", "open").hex()
    assert take_generation(arbiter(story.root), key, 1) == 1  # the first root lost its lease store, and went on
    story.close()
    report = restore(REAL_ENV, str(tmp_path / "backup"), str(tmp_path / "restored"))
    root = Root.open(tmp_path / "restored")
    record = lease_store(root).read("default", "open")
    assert record is not None
    assert generation_of(record.highest_token) == 2
    assert not any("never run agents on both" in line for line in report.warnings)


def test_an_open_trajectory_counts_as_incomplete_and_nobody_holds_it(story, tmp_path):
    root = restored(story, tmp_path)
    record = lease_store(root).read("default", "open")
    assert record is not None
    assert record.holder is None
    found = RootLog(root).read("default", "open", record)
    assert len(found.events) == 2
    assert not found.complete
    assert RootLog(story.root).read("default", "open", story.leases.read("default", "open")).complete


def test_a_restored_writer_is_sealed_and_closed_for_good(story, tmp_path):
    root = restored(story, tmp_path)
    assert all(segment.is_sealed for segment in _segments(root))
    with pytest.raises(WriterLocked, match="closed for good"):
        root.claim(story.writer.writer_id, SMALL, create=False)
    with root.claim_writer(SMALL) as writer:
        assert writer.writer_id != story.writer.writer_id
        assert writer.next_lsn == 0


def _segments(root: Root) -> list:
    from trajlake.runtime.wal.reader import list_segments

    return [segment for writer in root.writers() for segment in list_segments(REAL_ENV, root.writer_folder(writer))]


def test_a_backup_beside_busy_writers_holds_all_that_was_acknowledged_before_it(tmp_path):
    story = Story(tmp_path / "journal")
    stop, count = threading.Event(), [0]

    def work() -> None:
        while not stop.is_set():
            story.write(f"t{count[0]}", bulk=OLD if count[0] % 3 == 0 else b"", seal=False)
            count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not count[0]:
            time.sleep(0.001)
        for number in range(3):
            acknowledged = count[0]
            root = restored(story, tmp_path, f"r{number}")
            (found,) = lsns(root).values()
            assert len(found) >= 4 * acknowledged
            assert [one for one in check_root(root, Checked()) if not one.is_note] == []
            recorded = {record.trajectory_id for record in lease_store(root).records()}
            assert {f"t{one}" for one in range(acknowledged)} <= recorded
    finally:
        stop.set()
        thread.join()
        story.close()
    assert count[0] > 3


def test_a_backup_killed_at_any_call_is_none_or_whole(story, tmp_path):
    story.close()
    for at in range(1, 400, 5):
        target = tmp_path / f"b{at}"
        died = dies_at(at, lambda env, target=target: back_up(Root.open(story.root.path, env), str(target)))
        if (target / MANIFEST).exists():
            restore(REAL_ENV, str(target), str(tmp_path / f"r{at}"))
            assert lsns(Root.open(tmp_path / f"r{at}")) == lsns(story.root)
        else:
            assert died
            with pytest.raises(RootError, match="no whole backup"):
                restore(REAL_ENV, str(target), str(tmp_path / f"r{at}"))
        if not died:
            break
    assert not died


def test_a_restore_killed_at_any_call_leaves_no_root_or_a_whole_one(story, tmp_path):
    back_up(story.root, str(tmp_path / "backup"))
    tokens = set()
    for at in range(1, 400, 5):
        target = tmp_path / "parts" / f"r{at}"
        died = dies_at(at, lambda env, target=target: restore(env, str(tmp_path / "backup"), str(target)))
        if target.exists():
            root = Root.open(target, create=False)
            assert lsns(root) == lsns(story.root)
            record = lease_store(root).read("default", "open")
            assert record is not None
            tokens.add(generation_of(record.highest_token))
        if not died:
            break
    assert not died
    assert tokens == {1}


def test_a_damaged_or_cut_backup_is_refused_and_nothing_stands_at_the_target(story, tmp_path):
    back_up(story.root, str(tmp_path / "backup"))
    for name, data in tree(tmp_path / "backup").items():
        path = tmp_path / "backup" / name
        if name == MANIFEST:
            continue
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if data else b"x")
        with pytest.raises(RootError, match="not those that were backed up"):
            restore(REAL_ENV, str(tmp_path / "backup"), str(tmp_path / "out"))
        path.unlink()
        with pytest.raises(RootError, match="not whole"):
            restore(REAL_ENV, str(tmp_path / "backup"), str(tmp_path / "out"))
        path.write_bytes(data)
    assert not (tmp_path / "out").exists()


def test_damage_in_the_root_stops_a_backup(story, tmp_path):
    story.close()
    path = Path(_segments(story.root)[0].path)
    data = bytearray(path.read_bytes())
    data[4300] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentCorrupt):
        back_up(story.root, str(tmp_path / "backup"))


def test_targets_that_hold_something_are_refused(story, tmp_path):
    back_up(story.root, str(tmp_path / "backup"))
    with pytest.raises(RootError, match="not empty"):
        back_up(story.root, str(tmp_path / "backup"))
    with pytest.raises(RootError, match="outside"):
        back_up(story.root, f"{story.root.path}/inside")
    with pytest.raises(RootError, match="new folder"):
        restore(REAL_ENV, str(tmp_path / "backup"), story.root.path)
