"""Retention: what may leave a root, in which order, and what a kill or a power loss between two steps leaves."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.support.bare_writer import FOLDER, WRITER_ID, BareWriter
from tests.support.events import event_of
from tests.support.faulty_env import FaultyEnv
from tests.support.killing import dies_at
from tests.support.roots import SMALL, Story, land, lsns
from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.leases.lease import Claim, Head
from trajlake.runtime.root import Root
from trajlake.runtime.upkeep.landed import open_landed
from trajlake.runtime.upkeep.retention import retain
from trajlake.runtime.wal.reader import iter_events, list_segments


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def story(tmp_path: Path):
    story = Story(tmp_path / "journal")
    yield story
    story.close()


def run(root: Root, landing: Path, env: Env = REAL_ENV, **options):
    return retain(Root.open(root.path, env), open_landed(str(landing), env), **options)


def test_landed_segments_of_ended_trajectories_go_and_the_last_one_stays(story, landing):
    for number in range(4):
        story.write(f"t{number}")
    land(story.root, landing)
    report = run(story.root, landing)
    assert len(report.segments) == 3
    assert lsns(story.root) == {story.writer.writer_id: [12, 13, 14, 15]}
    story.write("t4")
    story.close()
    assert Story(Path(story.root.path)).writer.next_lsn == 20


def test_nothing_goes_that_the_landing_lacks_or_holds_with_other_bytes(story, landing):
    for number in range(3):
        story.write(f"t{number}")
    assert run(story.root, landing).segments == []
    land(story.root, landing)
    first = min(landing.rglob("*.seg"))
    data = bytearray(first.read_bytes())
    data[5000] ^= 1
    first.write_bytes(data)
    report = run(story.root, landing)
    assert report.segments == []
    assert "other bytes" in report.kept[story.writer.writer_id]
    first.unlink()
    assert "not in the landing" in run(story.root, landing).kept[story.writer.writer_id]
    assert len(story.segments()) == 3


def test_nothing_goes_before_every_blob_that_it_names_has_landed_whole(story, landing):
    story.write("t0", bulk=b"x" * 50_000)
    story.write("t1")
    land(story.root, landing, blobs=False)
    assert "blob" in run(story.root, landing).kept[story.writer.writer_id]
    land(story.root, landing)
    (blob,) = (landing / "blobs").rglob("*/" + story.blobs["t0"])
    blob.write_bytes(b"y" + blob.read_bytes()[1:])
    assert "damaged" in run(story.root, landing).kept[story.writer.writer_id]
    land(story.root, landing)
    assert len(run(story.root, landing).segments) == 1


def test_segments_of_open_trajectories_stay_unless_asked_and_hold_back_those_behind(story, landing):
    story.write("t0")
    story.write("open", ended=False)
    story.write("t2")
    story.write("t3")
    land(story.root, landing)
    report = run(story.root, landing)
    assert len(report.segments) == 1
    assert "open trajectories" in report.kept[story.writer.writer_id]
    assert len(run(story.root, landing, open_too=True).segments) == 2


def test_a_trajectory_whose_lease_was_never_released_counts_as_open(story, landing):
    story.write("t0")
    story.write("t1")
    land(story.root, landing)
    record = next(one for one in story.leases.records() if one.trajectory_id == "t0")
    Path(story.root.trajectory_path(_key(record))).unlink()
    assert len(run(story.root, landing, dry_run=True).segments) == 1  # an import: `TaskEnded` decides
    path = Path(story.root.trajectory_path(_key(record)))
    other = next(one for one in story.leases.records() if one.trajectory_id == "t1")
    text = Path(story.root.trajectory_path(_key(other))).read_text().replace('"t1"', '"t0"')
    path.write_text(text.replace('"released_head":', '"was_head":'))
    assert run(story.root, landing, dry_run=True).segments == []


def test_a_trajectory_taken_up_again_after_its_end_counts_as_open_until_it_is_released(story, landing):
    story.write("t0")
    story.write("t1")
    land(story.root, landing)
    record = story.leases.read("default", "t0")
    claim = Claim(tenant="default", trajectory_id="t0", worker="other", writer="f" * 32, host="h")
    lease = story.leases.acquire(claim, 2, expected=record.revision, duration_s=0.01)
    time.sleep(0.02)  # its worker died: the lease ran out, the tenure has no end
    assert run(story.root, landing).segments == []
    taken = story.leases.acquire(claim, 3, expected=lease.revision)
    story.leases.release(taken, Head(4, "00" * 32))
    assert len(run(story.root, landing).segments) == 1


def _key(record) -> bytes:
    from trajlake.schemas.ids import trajectory_key

    return trajectory_key(record.tenant, record.trajectory_id)


def test_a_dry_run_and_young_segments_drop_nothing(story, landing):
    for number in range(3):
        story.write(f"t{number}")
    land(story.root, landing)
    assert len(run(story.root, landing, dry_run=True).segments) == 2
    assert run(story.root, landing, older_than_s=3600).segments == []
    assert len(story.segments()) == 3


def test_a_kill_at_any_call_leaves_a_row_without_a_gap_and_a_second_run_ends_the_work(tmp_path, landing):
    story = Story(tmp_path / "made")
    for number in range(4):
        story.write(f"t{number}")
    story.close()
    land(story.root, landing)
    for at in range(1, 100):
        root = Root.open(tmp_path / f"copy{at}")
        shutil.copytree(story.root.path, root.path, dirs_exist_ok=True)
        died = dies_at(at, lambda env, root=root: run(root, landing, env))
        (left,) = lsns(root).values()
        assert left == list(range(left[0], 16)), f"killed at call {at}"
        run(root, landing)
        assert lsns(root) == {story.writer.writer_id: [12, 13, 14, 15]}
        root.claim_writer(SMALL).close()
        if not died:
            break
    assert at == 10  # the folder of the lock; three times: unlink, sync of the folder


def test_after_a_power_loss_at_any_moment_no_segment_is_missing_behind_one_that_is_there() -> None:
    """The removals are durable one after the other: without the sync between them a later one may come first."""
    env = FaultyEnv(7)
    writer = BareWriter(env)
    number = 0
    while len(list_segments(env, FOLDER)) < 8:
        writer.write(event_of("t", number, size=500))
        number += 1
    writer.close()
    root = Root.open("/journal", env)
    for segment in list_segments(env, FOLDER):
        env_path = f"/landing/writers/{WRITER_ID.hex()}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
        _put(env, env_path, segment.path)
    images: list[FaultyEnv] = []
    pick = random.Random(7)
    env.before = lambda operation, path: images.extend(
        env.crash_image(pick.randrange(1 << 30)) for _ in range(4 if "journal/writers" in path else 0)
    )
    report = retain(root, open_landed("/landing", env), open_too=True)
    env.before = lambda operation, path: None
    assert len(report.segments) == 7
    assert len(images) >= 40
    for image in images:
        left = [event.lsn for event in iter_events(image, FOLDER)]
        assert left == list(range(left[0], number))


def _put(env: FaultyEnv, path: str, source: str) -> None:
    from trajlake.runtime.env import make_folder, read_file, write_atomically

    make_folder(env, path.rpartition("/")[0])
    write_atomically(env, path, read_file(env, source))
