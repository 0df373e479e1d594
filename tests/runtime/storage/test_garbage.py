"""`gc`: what goes, what never goes, and what a kill between two steps leaves."""

from __future__ import annotations

import os
import shutil
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.killing import dies_at
from tests.support.roots import DAY_S, SMALL, Story, age, land, lsns, tree
from trajlake.runtime.checkpoints.checkpoint import CheckpointFiles, Record
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.leases.lease import Claim
from trajlake.runtime.root import Root
from trajlake.runtime.upkeep.garbage import collect_garbage
from trajlake.runtime.upkeep.landed import open_landed
from trajlake.runtime.wal.journal_errors import SegmentCorrupt, WriterLocked

OLD = 50_000 * b"x"


@pytest.fixture
def story(tmp_path: Path):
    story = Story(tmp_path / "journal")
    yield story
    story.close()


def blobs(root: Root) -> set[str]:
    return {name for _, name in root.blobs.names()}


def old(path: str, days: float = 1.01) -> None:
    os.utime(path, (time.time() - days * DAY_S,) * 2)


def put_old(root: Root, data: bytes, days: float = 1.01) -> str:
    name = root.blobs.put("default", data)
    old(root.blobs.path("default", name), days)
    return name


def test_a_blob_that_nothing_names_goes_after_a_day_and_one_that_an_event_names_never(story):
    story.write("t0", bulk=OLD)
    old(story.root.blobs.path("default", story.blobs["t0"]), 400)
    unnamed, young = put_old(story.root, b"unnamed"), put_old(story.root, b"young", 0.99)
    assert collect_garbage(story.root, dry_run=True).blobs == [f"default/{unnamed}"]
    assert unnamed in blobs(story.root)
    assert collect_garbage(story.root).blobs == [f"default/{unnamed}"]
    assert blobs(story.root) == {story.blobs["t0"], young}


def test_a_blob_that_an_active_segment_names_stays(story):
    story.write("t0", bulk=OLD, seal=False)
    old(story.root.blobs.path("default", story.blobs["t0"]), 2)
    assert collect_garbage(story.root).blobs == []


@pytest.mark.parametrize("place", ["imports/{}/1.json", "checkpoints/ab/1.json", "mail/ab/1.json"])
def test_a_blob_that_an_import_checkpoint_or_mail_names_stays(story, place):
    name = put_old(story.root, b"source")
    path = Path(story.root.path) / place.format(name)
    path.parent.mkdir(parents=True)
    path.write_text("{}" if "{}" in place else f'{{"root":"{name}"}}')
    assert collect_garbage(story.root).blobs == []
    path.unlink()
    path.parent.rmdir()
    assert collect_garbage(story.root).blobs == [f"default/{name}"]


def test_a_blob_that_a_named_blob_lists_stays_also_two_deep(story):
    leaf = put_old(story.root, b"leaf")
    middle = put_old(story.root, f'{{"file":"{leaf}"}}'.encode())
    story.write("t0", bulk=f'["{middle}"]'.encode() * 1000)
    assert collect_garbage(story.root).blobs == []
    assert blobs(story.root) == {leaf, middle, story.blobs["t0"]}


def test_a_blob_refreshed_while_garbage_is_collected_stays(story):
    """The put waits for the lock or comes before it; either way the stat under the lock sees it young."""
    name = put_old(story.root, b"again")
    listdir = REAL_ENV.listdir
    root = Root.open(story.root.path)

    class Refreshing(type(REAL_ENV)):
        def listdir(self, path: str) -> list[str]:
            if path.endswith("/writers"):  # after the names were taken, before anything is unlinked
                story.root.blobs.put("default", b"again")
            return listdir(path)

    root = Root.open(story.root.path, Refreshing())
    assert collect_garbage(root).blobs == []
    assert name in blobs(story.root)


def test_a_put_waits_while_blobs_are_removed(story):
    put_old(story.root, b"unnamed")
    done = threading.Event()

    def put() -> None:
        story.root.blobs.put("default", b"other")
        done.set()

    with story.root.blobs.locked(exclusive=True):
        thread = threading.Thread(target=put)
        thread.start()
        assert not done.wait(0.1)
    assert done.wait(10)
    thread.join()


def test_a_dead_writer_goes_when_all_has_ended_landed_and_rested_for_a_day(story, tmp_path):
    story.write("t0")
    story.close()
    other = Story(Path(story.root.path))
    assert other.writer.writer_id == story.writer.writer_id  # it is used again while it is there
    other.close()
    landing = tmp_path / "landing"
    landed = open_landed(str(landing), REAL_ENV)
    age(story.root, 2)
    assert collect_garbage(story.root).writers == []
    assert collect_garbage(story.root, landed=landed).writers == []
    land(story.root, landing)
    age(story.root, -2)
    assert collect_garbage(story.root, landed=landed).writers == []
    age(story.root, 2)
    assert collect_garbage(story.root, landed=landed).writers == [story.writer.writer_id]
    assert story.root.writers() == []
    with story.root.claim_writer(SMALL) as fresh:
        assert fresh.writer_id != story.writer.writer_id


def test_a_writer_that_lives_or_that_an_open_trajectory_names_stays(story, tmp_path):
    landing = tmp_path / "landing"
    landed = open_landed(str(landing), REAL_ENV)
    story.write("t0")
    land(story.root, landing)
    age(story.root, 2)
    assert collect_garbage(story.root, landed=landed).writers == []
    story.write("open", ended=False)
    story.close()
    land(story.root, landing)
    age(story.root, 2)
    assert collect_garbage(story.root, landed=landed).writers == []
    assert len(story.segments()) == 2


def test_a_writer_that_the_tenure_of_an_unsent_trajectory_names_stays(story, tmp_path):
    """Its log would count as incomplete without the folder, though no event of it is there."""
    story.write("t0")
    writer = story.writer.writer_id
    claim = Claim(tenant="default", trajectory_id="unsent", worker="w", writer=writer, host="h")
    story.leases.acquire(claim, 1, expected=None, duration_s=0.01)
    story.close()
    land(story.root, tmp_path / "landing")
    age(story.root, 2)
    landed = open_landed(str(tmp_path / "landing"), REAL_ENV)
    assert collect_garbage(story.root, landed=landed).writers == []


def test_who_waited_for_the_lock_of_a_writer_that_went_does_not_make_it_again(story, tmp_path):
    story.write("t0")
    story.close()
    landing = tmp_path / "landing"
    land(story.root, landing)
    age(story.root, 2)
    collect_garbage(story.root, landed=open_landed(str(landing), REAL_ENV))
    root = Root.open(story.root.path)  # of another process, which has not made that folder itself
    with pytest.raises(WriterLocked, match="removed"):
        root.claim(story.writer.writer_id, SMALL, create=False)
    assert root.writers() == []


def test_a_kill_at_any_call_leaves_nothing_that_is_taken_for_a_new_writer(tmp_path):
    story = Story(tmp_path / "made")
    story.write("t0", bulk=OLD)
    story.close()
    landing = tmp_path / "landing"
    land(story.root, landing)
    put_old(story.root, b"unnamed")
    age(story.root, 2)
    for at in range(1, 100):
        root = Root.open(tmp_path / f"copy{at}")
        shutil.rmtree(root.path)
        shutil.copytree(story.root.path, root.path)  # with the times of the files
        landed = open_landed(str(landing), REAL_ENV)
        died = dies_at(
            at, lambda env, root=root, landed=landed: collect_garbage(Root.open(root.path, env), landed=landed)
        )
        for writer, found in lsns(root).items():
            assert (writer, found) == (story.writer.writer_id, [0, 1, 2, 3]), f"killed at call {at}"
        collect_garbage(root, landed=landed)
        collect_garbage(root, landed=landed)
        assert root.writers() == []
        assert not [name for name in tree(Path(root.path)) if "gone" in name or sha256(b"unnamed").hexdigest() in name]
        if not died:
            break
    assert at > 8


def test_of_an_ended_trajectory_only_the_newest_checkpoint_and_pinned_ones_stay_and_their_objects_with_them(story):
    files = CheckpointFiles(REAL_ENV, story.root.path)
    roots: dict[str, list[str]] = {"t0": [], "open": []}
    for trajectory_id, names in roots.items():
        story.write(trajectory_id, ended=trajectory_id == "t0")
        for covers in range(4):
            part = story.root.blobs.put("default", f"part {trajectory_id} {covers}".encode())
            names.append(story.root.blobs.put("default", f'{{"parts":["{part}"]}}'.encode()))
            record = Record(tenant="default", trajectory_id=trajectory_id, covers=covers, root=names[-1], cause="end")
            files.note(record)
            if covers == 1:
                files.pin(record)
    assert collect_garbage(story.root).checkpoints == []
    age(story.root, 8)
    report = collect_garbage(story.root)
    assert report.checkpoints == [_key("t0").hex()]
    assert [record.covers for record in files.of("default", "t0")] == [1, 3]
    assert [record.covers for record in files.of("default", "open")] == [0, 1, 2, 3]
    assert set(roots["open"]) | {roots["t0"][1], roots["t0"][3]} <= blobs(story.root)
    assert len(blobs(story.root)) == 12


def test_files_of_processes_that_were_killed_go_after_a_day(story):
    story.write("t0")
    leftover = Path(story.root.path) / "mail" / "ab" / ".x.json.0011.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("half")
    assert collect_garbage(story.root).leftovers == []
    age(story.root, 2)
    assert collect_garbage(story.root).leftovers == ["mail/ab/.x.json.0011.tmp"]
    assert not leftover.exists()


def test_damage_in_a_segment_stops_it_before_anything_is_called_garbage(story):
    story.write("t0")
    story.close()
    put_old(story.root, b"unnamed")
    path = Path(story.segments()[0].path)
    data = bytearray(path.read_bytes())
    data[4300] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentCorrupt):
        collect_garbage(story.root)
    assert len(blobs(story.root)) == 1


def _key(trajectory_id: str) -> bytes:
    from trajlake.schemas.ids import trajectory_key

    return trajectory_key("default", trajectory_id)
