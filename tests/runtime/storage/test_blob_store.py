"""Blobs: durable on return, verified on the way out, mended where a crash or a disk left them torn."""

from __future__ import annotations

import contextlib
import errno
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.faulty_env import Fault, FaultyEnv
from trajlake.runtime.blob_store import BlobStore
from trajlake.runtime.env import PIECE_BYTES, REAL_ENV, make_folder
from trajlake.runtime.wal.journal_errors import BlobMissing
from trajlake.schemas.errors import InvalidId

DATA = b"tool output\n" * 1000
NAME = sha256(DATA).hexdigest()


def store(env: FaultyEnv) -> BlobStore:
    make_folder(env, "/journal")
    return BlobStore(env, "/journal/blobs")


def test_a_blob_comes_back_by_its_hash_and_survives_power_loss_from_the_moment_put_returns() -> None:
    env = FaultyEnv()
    assert store(env).put("acme", DATA) == NAME
    for seed in (None, 1, 2):
        assert store(env.crash_image(seed)).get("acme", NAME) == DATA


def test_bulk_is_written_in_pieces_so_that_no_commit_beside_it_waits_for_all_of_it() -> None:
    env, written = FaultyEnv(), []
    blobs = store(env)
    env.before = lambda operation, path: written.append(operation) if path.endswith(".tmp") else None
    data = bytes(range(256)) * (PIECE_BYTES * 5 // 512)
    name = blobs.put("acme", data)
    assert [one for one in written if one in ("pwrite", "fdatasync")] == ["pwrite", "fdatasync"] * 3
    assert store(env.crash_image(1)).get("acme", name) == data


def test_a_power_loss_during_put_never_leaves_wrong_bytes_under_the_name() -> None:
    env = FaultyEnv()
    blobs = store(env)
    images: list[FaultyEnv] = []
    env.before = lambda _operation, _path: images.extend(env.crash_image(seed) for seed in range(8))
    blobs.put("acme", DATA)
    assert images
    for image in images:
        after = store(image)
        if after.has("acme", NAME):
            assert after.get("acme", NAME) == DATA
        after.put("acme", DATA)
        assert store(image.crash_image(None)).get("acme", NAME) == DATA


@pytest.mark.parametrize("damage", [b"", DATA[:-1], DATA[:4096] + bytes(len(DATA) - 4096), DATA + b"x"])
def test_a_torn_blob_is_refused_by_get_and_written_again_by_put(tmp_path: Path, damage: bytes) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    blobs.put("acme", DATA)
    path = Path(blobs.path("acme", NAME))
    path.write_bytes(damage)
    with pytest.raises(BlobMissing, match="do not have that hash"):
        blobs.get("acme", NAME)
    blobs.put("acme", DATA)
    assert blobs.get("acme", NAME) == DATA


def test_putting_a_blob_again_makes_it_young_and_writes_nothing() -> None:
    env = FaultyEnv()
    blobs = store(env)
    blobs.put("acme", DATA)
    before = env.stat(blobs.path("acme", NAME))
    writes = [call for call in env.trace if call[0] == "pwrite"]
    blobs.put("acme", DATA)
    after = env.stat(blobs.path("acme", NAME))
    assert after.modified_at_us > before.modified_at_us
    assert after.inode == before.inode
    assert [call for call in env.trace if call[0] == "pwrite"] == writes


def test_a_blob_put_before_by_a_process_that_died_is_durable_when_the_second_put_returns() -> None:
    env = FaultyEnv()
    blobs = store(env)
    blobs.put("acme", b"other")
    make_folder(env, blobs.path("acme", NAME).rpartition("/")[0])
    # The first process got as far as the rename; its folder was never synced.
    fd = env.open(blobs.path("acme", NAME), write=True, create=True)
    env.pwrite(fd, DATA, 0)
    env.fdatasync(fd)
    env.close(fd)
    assert not store(env.crash_image(None)).has("acme", NAME)
    blobs.put("acme", DATA)
    assert store(env.crash_image(None)).get("acme", NAME) == DATA


@pytest.mark.parametrize("fault", [Fault(errno.EIO), Fault(errno.ENOSPC), Fault(short=True)])
def test_a_disk_error_at_any_call_of_put_leaves_no_wrong_bytes_and_a_second_put_mends_it(fault: Fault) -> None:
    clean = FaultyEnv()
    blobs = store(clean)
    before = clean.calls
    blobs.put("acme", DATA)
    for call in range(before + 1, clean.calls + 1):
        env = FaultyEnv()
        blobs = store(env)
        env.faults[call] = fault
        with contextlib.suppress(OSError):
            assert blobs.put("acme", DATA) == NAME
            assert store(env.crash_image(None)).get("acme", NAME) == DATA
        assert not blobs.has("acme", NAME) or blobs.get("acme", NAME) == DATA, env.trace[call - 1]
        blobs.put("acme", DATA)
        assert store(env.crash_image(None)).get("acme", NAME) == DATA, env.trace[call - 1]


def test_tenants_do_not_share_blobs(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    blobs.put("acme", DATA)
    with pytest.raises(BlobMissing, match="no such blob"):
        blobs.get("globex", NAME)
    blobs.put("globex", b"x")
    assert list(blobs.names()) == [("acme", NAME), ("globex", sha256(b"x").hexdigest())]
    assert list(blobs.names("acme")) == [("acme", NAME)]


@pytest.mark.parametrize("name", ["", "../../etc/passwd", NAME.upper(), NAME[:-1], NAME + "/x"])
def test_what_is_no_hash_never_becomes_a_path(name: str) -> None:
    with pytest.raises(InvalidId):
        BlobStore(REAL_ENV, "/nowhere").get("acme", name)
    with pytest.raises(InvalidId):
        BlobStore(REAL_ENV, "/nowhere").get("../acme", NAME)


def test_a_put_waits_while_garbage_is_collected(tmp_path: Path) -> None:
    blobs = BlobStore(REAL_ENV, str(tmp_path / "blobs"))
    with blobs.locked(exclusive=True):
        thread = threading.Thread(target=blobs.put, args=("acme", DATA))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert not blobs.has("acme", NAME)
    thread.join(10)
    assert blobs.get("acme", NAME) == DATA
