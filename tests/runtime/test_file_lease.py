"""The file store's own promises: dead writers, boots, damage, stopped holders, other processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from trajlake.runtime.env import Env
from trajlake.runtime.leases.file_arbiter import FileArbiter
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, LeaseBusy, LeaseError, LeaseLost, take_lease
from trajlake.schemas.ids import trajectory_key

KEY = trajectory_key("default", "t").hex()


def claim(worker="a", writer="aa", host="here") -> Claim:
    return Claim(tenant="default", trajectory_id="t", worker=worker, writer=writer, host=host)


def record_path(root: Path) -> Path:
    return root / "trajectories" / KEY[:2] / f"{KEY}.json"


HOLDER = """
import fcntl, os, sys, time
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim
root = sys.argv[1]
os.makedirs(f"{root}/writers/aa", exist_ok=True)
lock = os.open(f"{root}/writers/aa/LOCK", os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
claim = Claim(tenant="default", trajectory_id="t", worker="a", writer="aa", host="here")
FileLeaseStore(root).acquire(claim, 1, expected=None)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def test_the_lease_of_a_killed_writer_is_taken_at_once(tmp_path, holder):
    store = FileLeaseStore(str(tmp_path))
    with pytest.raises(LeaseBusy):
        take_lease(store, FileArbiter(str(tmp_path)), claim("b", "bb"), KEY)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lease, before = take_lease(store, FileArbiter(str(tmp_path)), claim("b", "bb"), KEY)
    assert (lease.token, before.highest_token) == (2, 1)


def test_the_lease_of_a_stopped_writer_is_not_taken_before_it_runs_out(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(LeaseBusy):
        take_lease(FileLeaseStore(str(tmp_path)), FileArbiter(str(tmp_path)), claim("b", "bb"), KEY)


def test_whoever_holds_the_writer_directory_may_take_the_leases_of_its_dead_owner(tmp_path):
    store = FileLeaseStore(str(tmp_path), writer_is_dead=lambda writer: False)
    store.acquire(claim("old-life", "aa"), 1, expected=None)
    with pytest.raises(LeaseBusy):
        store.acquire(claim("other", "bb"), 2, expected="1")
    assert store.acquire(claim("new-life", "aa"), 2, expected="1").token == 2


def test_a_lease_whose_writer_directory_a_later_process_took_is_free_to_everybody(tmp_path, holder):
    """`holder` holds the directory; the lease in question is of an earlier life of it."""
    store = FileLeaseStore(str(tmp_path))
    (tmp_path / "writers" / "aa" / "WORKER").write_bytes(b"a later life")
    assert store.read("default", "t").holder is None
    (tmp_path / "writers" / "aa" / "WORKER").write_bytes(b"a")
    assert store.read("default", "t").holder.worker == "a"


def test_the_holder_of_a_writer_directory_is_named_before_its_first_lease(tmp_path, holder):
    assert (tmp_path / "writers" / "aa" / "WORKER").read_bytes() == b"a"


class Shifted(Env):
    """The real machine with another boot, host name, or clocks moved on."""

    def __init__(self, *, boot: bytes = b"b" * 16, host: str = "here", later_s: float = 0.0) -> None:
        super().__init__()
        self._boot_bytes, self._name, self._later_us = boot, host, int(later_s * 1e6)

    def boot_id(self) -> bytes:
        return self._boot_bytes

    def host(self) -> str:
        return self._name

    def boottime_us(self) -> int:
        return super().boottime_us() + self._later_us

    def now_us(self) -> int:
        return super().now_us() + self._later_us


def free_in_s(root: Path, env: Env) -> float:
    return FileLeaseStore(str(root), env=env, writer_is_dead=lambda writer: False).read("default", "t").free_in_s


def test_after_a_reboot_of_the_same_host_every_lease_is_free(tmp_path):
    FileLeaseStore(str(tmp_path), env=Shifted()).acquire(claim(), 1, expected=None)
    assert free_in_s(tmp_path, Shifted()) > 50
    assert free_in_s(tmp_path, Shifted(boot=b"c" * 16)) == 0


def test_a_root_moved_to_another_host_waits_for_the_lease_by_wall_clock(tmp_path):
    FileLeaseStore(str(tmp_path), env=Shifted()).acquire(claim(), 1, expected=None)
    assert free_in_s(tmp_path, Shifted(boot=b"c" * 16, host="there")) > 50
    assert free_in_s(tmp_path, Shifted(boot=b"c" * 16, host="there", later_s=61)) == 0


def test_wall_clock_steps_do_not_move_a_lease_on_its_own_host(tmp_path):
    class Stepped(Shifted):
        def now_us(self) -> int:
            return 0

    FileLeaseStore(str(tmp_path), env=Stepped()).acquire(claim(), 1, expected=None)
    assert free_in_s(tmp_path, Shifted()) > 50


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format":1}', b'{"format":1,"tenant":"x"', b"\xff\xfe"])
def test_a_damaged_record_stops_with_its_name_and_never_reads_as_absent(tmp_path, damage):
    store = FileLeaseStore(str(tmp_path))
    lease = store.acquire(claim(), 1, expected=None)
    record_path(tmp_path).write_bytes(damage)
    for attempt in (
        lambda: store.read("default", "t"),
        lambda: list(store.records()),
        lambda: store.extend(lease),
        lambda: take_lease(store, FileArbiter(str(tmp_path)), claim("b", "bb"), KEY),
    ):
        with pytest.raises(LeaseError, match=KEY):
            attempt()


def test_a_record_of_a_newer_format_is_refused_by_number(tmp_path):
    store = FileLeaseStore(str(tmp_path))
    store.acquire(claim(), 1, expected=None)
    tree = msgspec.json.decode(record_path(tmp_path).read_bytes())
    record_path(tmp_path).write_bytes(msgspec.json.encode(tree | {"format": 2}))
    with pytest.raises(LeaseError, match="format 2"):
        store.read("default", "t")


def test_a_record_that_vanished_is_a_lost_lease(tmp_path):
    store = FileLeaseStore(str(tmp_path))
    lease = store.acquire(claim(), 1, expected=None)
    record_path(tmp_path).unlink()
    with pytest.raises(LeaseLost):
        store.extend(lease)


def test_a_process_stopped_inside_a_change_blocks_that_trajectory_only_and_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("trajlake.runtime.leases.file_lease.LOCK_WAIT_MAX_S", 0.1)
    store = FileLeaseStore(str(tmp_path), writer_is_dead=lambda writer: False)
    lease = store.acquire(claim(), 1, expected=None)
    fd = os.open(record_path(tmp_path), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(LeaseError, match="stopped"):
        store.extend(lease)
    assert store.read("default", "t").holder.worker == "a"
    os.close(fd)
    assert store.extend(lease).token == 1


def test_no_extension_is_lost_and_no_file_left_over_when_many_threads_change_one_record(tmp_path):
    store = FileLeaseStore(str(tmp_path), writer_is_dead=lambda writer: False)
    lease = store.acquire(claim(), 1, expected=None)
    threads = [
        threading.Thread(target=lambda: [FileLeaseStore(str(tmp_path)).extend(lease) for _ in range(20)])
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read("default", "t").revision == str(1 + 6 * 20)
    assert [path.name for path in record_path(tmp_path).parent.iterdir()] == [f"{KEY}.json"]


def test_a_generation_is_created_once_whoever_asks(tmp_path):
    first, second = FileArbiter(str(tmp_path)), FileArbiter(str(tmp_path))
    assert first.create(KEY, 0, b"{}\n")
    assert not second.create(KEY, 0, b"other")
    assert (tmp_path / "generations" / KEY / "0.json").read_bytes() == b"{}\n"


def test_files_and_folders_are_private_to_their_owner(tmp_path):
    FileLeaseStore(str(tmp_path)).acquire(claim(), 1, expected=None)
    assert record_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert record_path(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_a_crash_between_two_renames_leaves_a_whole_record(tmp_path):
    """Kill a process that changes a record without pause, many times: what is left always reads, tokens only grow."""
    program = HOLDER.replace('print("held", flush=True)\ntime.sleep(600)', "").replace(
        "FileLeaseStore(root).acquire(claim, 1, expected=None)",
        "store = FileLeaseStore(root)\n"
        "found = store.read('default', 't')\n"
        "revision, token = (None, 1) if found is None else (found.revision, found.highest_token + 1)\n"
        "lease = store.acquire(claim, token, expected=revision, duration_s=0.001)\n"
        "print('held', flush=True)\n"
        "while True: lease = store.extend(lease, 0.001)\n",
    )
    highest = 0
    for round_number in range(6):
        child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "held\n"
        time.sleep(0.01 * round_number)
        child.kill()
        child.wait()
        token = FileLeaseStore(str(tmp_path)).read("default", "t").highest_token
        assert token == highest + 1
        highest = token
