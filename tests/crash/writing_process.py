"""A process that is killed while it writes: 64 trajectories, each acknowledgement on a pipe the moment it comes.

Arguments: root, world (threads or asyncio), events per trajectory. Writes "<trajectory> <sequence number>" lines.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from tests.support.events import event_of, info_of
from trajlake.runtime.root import Root
from trajlake.runtime.wal.writer import Writer

TRAJECTORIES = 64
SIZE_BYTES = 1000


def tell(trajectory: int, sequence_number: int) -> None:
    # Shorter than PIPE_BUF: a line is written whole or not at all.
    os.write(1, f"{trajectory} {sequence_number}\n".encode())


def run_thread(writer: Writer, trajectory: int, count: int) -> None:
    info = info_of(f"t{trajectory}")
    for number in range(count):
        writer.append([event_of(f"t{trajectory}", number, size=SIZE_BYTES)], info).wait()
        tell(trajectory, number)


async def run_task(writer: Writer, trajectory: int, count: int) -> None:
    info = info_of(f"t{trajectory}")
    for number in range(count):
        await writer.append([event_of(f"t{trajectory}", number, size=SIZE_BYTES)], info)
        tell(trajectory, number)


async def run_tasks(writer: Writer, count: int) -> None:
    await asyncio.gather(*(run_task(writer, trajectory, count) for trajectory in range(TRAJECTORIES)))


def main() -> None:
    root, world, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    writer = Root.open(root).claim_writer()
    if world == "asyncio":
        asyncio.run(run_tasks(writer, count))
    else:
        threads = [threading.Thread(target=run_thread, args=(writer, t, count)) for t in range(TRAJECTORIES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    writer.close()


if __name__ == "__main__":
    main()
