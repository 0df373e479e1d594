"""Our side: `python -m tests.benchmarks.journal_side WORLD AGENTS SECONDS FOLDER [OPTION=VALUE ...]`, prints one JSON.

Options: stretch_ms (a barrier that takes so long, behind the env seam), window_ms and batch (the document's W and B),
two_calls=1 (write + fdatasync), open_loop=R (events/s of each agent; coarse=1: with asyncio's own timers),
hog=1 (a CPU-bound thread beside it), switch_us (sys.setswitchinterval), segment_mib, start_at (monotonic seconds:
several processes begin together).

Segments are filled with zeros ahead of use, by a thread of the writer: that of the first two is done before counting
begins.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
from typing import Any

from tests.benchmarks.journal_load import precise_loop, print_result, run_open_loop, run_tasks, run_threads
from tests.support.events import event_of, info_of
from trajlake.runtime.env import Env
from trajlake.runtime.root import Root
from trajlake.runtime.wal.writer_options import WriterOptions

SIZE_BYTES = 1024
MADE = 4
"""Different events for each agent, few: a real one has just been made, so it is in the CPU's caches. Storage does not
check that numbers go on."""


class StretchedEnv(Env):
    """A disk whose barrier takes `stretch_s` at least: a network volume."""

    def __init__(self, stretch_s: float) -> None:
        super().__init__()
        self._stretch_s = stretch_s

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        end = time.perf_counter() + self._stretch_s
        count = super().pwrite_durably(fd, data, offset)
        time.sleep(max(0.0, end - time.perf_counter()))
        return count


def env_of(options: dict[str, float]) -> Env:
    if options.get("stretch_ms"):
        return StretchedEnv(options["stretch_ms"] / 1000)
    return Env(one_call_barrier=not options.get("two_calls"))


def run(world: str, agents: int, seconds: float, folder: str, options: dict[str, float]) -> dict[str, Any]:
    env = env_of(options)
    segment_bytes = int(options.get("segment_mib", 64)) << 20
    writer_options = WriterOptions(
        segment_size_min_bytes=segment_bytes, segment_size_max_bytes=segment_bytes,
        commit_delay_max_ms=options.get("window_ms", 0.0), batch_events_max=int(options.get("batch", 4096)),
    )  # fmt: skip
    writer = Root.open(folder, env).claim_writer(writer_options)
    infos = [info_of(f"t{agent}") for agent in range(agents)]
    events = [[[event_of(f"t{agent}", n, size=SIZE_BYTES)] for n in range(MADE)] for agent in range(agents)]
    append = writer.append
    append(events[0][0], infos[0]).wait()
    _wait_for_spare(writer)
    if options.get("start_at"):
        time.sleep(max(0.0, options["start_at"] - time.perf_counter()))
    device_before = env.device(folder)
    stop = threading.Event()
    if options.get("switch_us"):
        sys.setswitchinterval(options["switch_us"] / 1e6)
    if options.get("hog"):
        threading.Thread(target=_spin, args=(stop,), daemon=True).start()
    sizes, written_before = _batch_sizes(writer), writer.stats().bytes_written
    began = time.perf_counter()

    def commit(agent: int, number: int) -> None:
        # Lazily, as the runtime appends for agents: who waits next may write itself.
        append(events[agent][number % MADE], infos[agent], lazy=True).wait()

    async def acommit(agent: int, number: int) -> None:
        await append(events[agent][number % MADE], infos[agent])

    if options.get("open_loop"):
        with asyncio.Runner(loop_factory=None if options.get("coarse") else precise_loop) as runner:
            found = runner.run(run_open_loop(agents, options["open_loop"], seconds, acommit))
    elif world == "threads":
        found = run_threads(agents, seconds, commit)
    else:
        found = asyncio.run(run_tasks(agents, seconds, acommit))
    stop.set()
    device = env.device(folder)
    found["barriers"], found["events_per_barrier"] = len(sizes), statistics.fmean(sizes)
    found["journal_bytes"] = writer.stats().bytes_written - written_before
    if device is not None and device_before is not None:
        found["device_bytes"] = device.written_bytes - device_before.written_bytes
    found["late"] = float(bool(options.get("start_at")) and began > options["start_at"] + 0.05)
    writer.close()
    return found


def _wait_for_spare(writer: Any) -> None:
    spares = writer._chain._spares
    while spares._ready is None:
        time.sleep(0.01)


def _batch_sizes(writer: Any) -> list[int]:
    """A list that every barrier from now on adds its number of events to."""
    measured, sizes = writer.stats().measured, []
    note = measured.batch

    def batch(events: int, **stages: float) -> None:
        sizes.append(events)
        note(events, **stages)

    measured.batch = batch
    return sizes


def _spin(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def main() -> None:
    world, agents, seconds, folder, *rest = sys.argv[1:]
    options = {name: float(value) for name, _, value in (word.partition("=") for word in rest)}
    print_result(run(world, int(agents), float(seconds), folder, options))


if __name__ == "__main__":
    main()
