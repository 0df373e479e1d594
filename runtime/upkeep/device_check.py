"""What `trajlake doctor` measures: a barrier by each scheme, the flushes behind it, and what to expect of an agent."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from ..env import DeviceFacts, Env, write_fully
from ..wal.barrier_check import BLOCK_BYTES, TOO_FAST_US, file_system_warnings, speed_warnings

GROWING: Final = "growing file, write + fdatasync"
TWO_CALLS: Final = "zero-filled file, write + fdatasync"
ONE_CALL: Final = "zero-filled file, one call (RWF_DSYNC)"
"""The last is what the writer does where the system has it; then the middle one; the first is what plain logs do."""

_COMMIT_PER_BARRIER: Final = 1.6
"""Bar of the benchmark for one agent on a thread: commit p50 against the raw barrier."""

_EVENTS_PER_BARRIER: Final = 40
"""Of 64 closed-loop agents so many meet in one barrier, about."""


class SchemeReport(NamedTuple):
    """One way to make 1 KB durable. `flushes` per barrier, None where the system does not count them."""

    scheme: str
    median_us: float
    p99_us: float
    flushes: float | None


class DeviceReport(NamedTuple):
    """All that was found; `warnings` are reasons for doubt, `expect` says what it means for an agent."""

    folder: str
    file_system: str
    device: DeviceFacts | None
    schemes: list[SchemeReport]
    warnings: list[str]
    expect: list[str]


def check_device(env: Env, folder: str, *, count: int = 200) -> DeviceReport:
    """Measure `count` barriers of 1 KB by each scheme, in files of its own that go again. Raises OSError."""
    names = [GROWING, TWO_CALLS] + ([ONE_CALL] if env.one_call_barrier else [])
    schemes = [_measure(env, folder, name, count) for name in names]
    kind, device = env.file_system(folder), env.device(folder)
    ours = schemes[-1]
    warnings = [*file_system_warnings(kind, folder), *speed_warnings(ours.median_us)]
    if ours.flushes is not None and ours.flushes < 0.9 and device is not None and device.write_cache == "write back":
        warnings.append(
            f"{device.name} has a volatile cache, and {ours.flushes:.2f} flushes were counted per barrier: a power loss"
            " may take acknowledged events; use Env(one_call_barrier=False), and check the file system's mount options"
        )
    if device is None:
        warnings.append(f"{folder}: the system counts no flushes here: that barriers reach the disk was not checked")
    return DeviceReport(folder, kind, device, schemes, warnings, _expect(schemes))


def _measure(env: Env, folder: str, scheme: str, count: int) -> SchemeReport:
    path = f"{folder}/doctor-{env.random_bytes(6).hex()}.tmp"
    fd = env.open(path, write=True, create=True, exclusive=True)
    try:
        if scheme != GROWING:
            write_fully(env, fd, bytes(BLOCK_BYTES * count))
        env.fdatasync(fd)
        before = env.device(folder)
        taken = sorted(_barrier(env, fd, scheme, number * BLOCK_BYTES) for number in range(count))
        after = env.device(folder)
    finally:
        env.close(fd)
        with contextlib.suppress(OSError):
            env.unlink(path)
    flushes = None if before is None or after is None else (after.flushes - before.flushes) / count
    return SchemeReport(scheme, taken[count // 2], taken[min(count - 1, count * 99 // 100)], flushes)


def _barrier(env: Env, fd: int, scheme: str, offset: int) -> float:
    """Return the µs that one barrier took."""
    data = b"x" * BLOCK_BYTES
    begun = env.monotonic()
    if scheme == ONE_CALL:
        env.pwrite_durably(fd, data, offset)
    else:
        write_fully(env, fd, data, offset)
        env.fdatasync(fd)
    return (env.monotonic() - begun) * 1e6


def _expect(schemes: list[SchemeReport]) -> list[str]:
    ours, growing = schemes[-1], schemes[0]
    if ours.median_us < TOO_FAST_US:
        return []
    alone_ms = ours.median_us * _COMMIT_PER_BARRIER / 1000
    together = 1e6 / ours.median_us * _EVENTS_PER_BARRIER
    alone = f"one agent alone waits about {alone_ms:.2f} ms for each durable step at the median"
    return [
        f"{alone}, and {ours.p99_us / 1000:.2f} ms or more once in a hundred",
        f"agents share barriers: 64 at work reach at most about {together:,.0f} events/s, if the CPU keeps up",
        f"a log that grows its file would wait {growing.median_us / ours.median_us:.1f} times as long for its barrier",
    ]
