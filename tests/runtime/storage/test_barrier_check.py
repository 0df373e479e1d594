"""Doubts about the disk are told: network file systems, memory, barriers too slow or too fast to be true."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.root import Root
from trajlake.runtime.wal.barrier_check import check_barrier, file_system_warnings


class Disk(FaultyEnv):
    """A disk of a given kind and speed."""

    def __init__(self, kind: str, barrier_us: float) -> None:
        super().__init__()
        self.kind = kind
        self.barrier_s = barrier_us / 1e6
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        self.now_s += self.barrier_s
        return super().pwrite_durably(fd, data, offset)

    def file_system(self, path: str) -> str:
        return self.kind


@pytest.mark.parametrize(
    ("kind", "barrier_us", "told"),
    [
        ("ext4", 100, None),
        ("xfs", 900, None),
        ("nfs4", 100, "network file system"),
        ("tmpfs", 100, "lives in memory"),
        ("ext4", 2000, "2.0 ms"),
        ("ext4", 3, "volatile"),
    ],
)
def test_a_doubtful_barrier_is_told(kind: str, barrier_us: float, told: str | None) -> None:
    env = Disk(kind, barrier_us)
    report = check_barrier(env, "")
    assert report.median_us == pytest.approx(barrier_us)
    assert report.samples == 50
    if told is None:
        assert report.warnings == []
    else:
        [warning] = report.warnings
        assert told in warning
    assert env.listdir("/") == []


def test_the_real_disk_is_measured_both_ways_and_left_clean(tmp_path: Path) -> None:
    for env in (REAL_ENV, Env(one_call_barrier=False)):
        report = check_barrier(env, str(tmp_path), count=10)
        assert 0 < report.median_us <= report.p99_us
    assert os.listdir(tmp_path) == []


def test_the_kind_of_a_file_system_is_that_of_the_nearest_mount() -> None:
    assert REAL_ENV.file_system("/proc/self") == "proc"
    assert REAL_ENV.file_system("/nowhere/at/all") == REAL_ENV.file_system("/")


def test_claiming_a_writer_on_a_network_file_system_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with Root.open("/journal", Disk("nfs4", 100)).claim_writer():
        assert "network file system (nfs4)" in caplog.text
    assert file_system_warnings("ext4", "/journal") == []
