"""Is a barrier here what it claims to be? Measures some, looks at the file system, and says what to expect."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from ..env import Env, write_fully

NETWORK_FILE_SYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "fuse.sshfs", "fuse.s3fs",
    "fuse.glusterfs", "beegfs", "gpfs", "virtiofs",
})  # fmt: skip
"""Locks and barriers there depend on a server: flock may not hold between hosts, a barrier may be a promise."""
VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
SLOW_US: Final = 1_000.0
"""A median barrier above this is a network disk or a spinning one."""
TOO_FAST_US: Final = 10.0
"""No storage flushes faster: below it the bytes most likely stay in a volatile cache."""
BLOCK_BYTES: Final = 1024


class BarrierReport(NamedTuple):
    """Barriers of 1 KB, in µs, and one line for each reason to doubt them."""

    file_system: str
    samples: int
    median_us: float
    p99_us: float
    warnings: list[str]


def check_barrier(env: Env, folder: str, *, count: int = 50) -> BarrierReport:
    """Measure `count` barriers in a file of its own in `folder`, which is removed again. Raises OSError.

    Takes about `count` times a barrier: 10 ms on a local disk, a second on a slow network one.
    """
    path = f"{folder}/barrier-{env.random_bytes(6).hex()}.tmp"
    fd = env.open(path, write=True, create=True, exclusive=True)
    try:
        write_fully(env, fd, bytes(BLOCK_BYTES * count))
        env.fdatasync(fd)
        taken = sorted(_one_barrier(env, fd, number * BLOCK_BYTES) * 1e6 for number in range(count))
    finally:
        env.close(fd)
        with contextlib.suppress(OSError):
            env.unlink(path)
    median, p99 = taken[count // 2], taken[min(count - 1, count * 99 // 100)]
    kind = env.file_system(folder)
    return BarrierReport(kind, count, median, p99, [*file_system_warnings(kind, folder), *speed_warnings(median)])


def file_system_warnings(kind: str, folder: str) -> list[str]:
    """Return what to tell of a file system of that kind; nothing for a local, lasting one."""
    if kind in NETWORK_FILE_SYSTEMS:
        return [
            (
                f"{folder}: on a network file system ({kind}): locks may not hold between hosts and a barrier is only"
                " as good as the server's; put the journal on a local disk and ship it"
            )
        ]
    if kind in VOLATILE_FILE_SYSTEMS:
        return [f"{folder}: on {kind}, which lives in memory: nothing there survives a restart of the machine"]
    return []


def speed_warnings(median_us: float) -> list[str]:
    """Return what to tell of a barrier that takes so many µs at the median; nothing where that is to be expected."""
    if median_us > SLOW_US:
        return [
            (
                f"a barrier takes {median_us / 1000:.1f} ms here: every durable step of an agent waits that long"
                " (network or spinning disk?)"
            )
        ]
    if median_us < TOO_FAST_US:
        return [
            (
                f"a barrier takes {median_us:.1f} µs here, faster than any disk: its cache is most likely volatile,"
                " and a power loss would take acknowledged events with it"
            )
        ]
    return []


def _one_barrier(env: Env, fd: int, offset: int) -> float:
    data = b"x" * BLOCK_BYTES
    begun = env.monotonic()
    if env.one_call_barrier:
        env.pwrite_durably(fd, data, offset)
    else:
        write_fully(env, fd, data, offset)
        env.fdatasync(fd)
    return env.monotonic() - begun
