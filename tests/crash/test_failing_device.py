"""A real disk that fails: ext4 on a loop device whose backing file can no longer take some of its blocks.

The blocks of zeros ahead of the journal's end are punched out of the backing file (they read as zeros all the same),
and the tmpfs that holds it is filled: the next barrier there fails with EIO, as that of a dying disk. Then the file
system is mounted anew, so that nothing is read from the page cache. Needs root, losetup, mkfs.ext4 and filefrag.

Each barrier is one page, because a loop device lies about others (seen on Linux 6.18): of a write of two pages whose
second finds no space, it reports success. No journal can be safe over that; `test_power_loss.py` assumes honesty too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bare_writer import plain
from tests.support.events import event_of, info_of
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import HEADER_SIZE
from trajlake.runtime.wal.journal_errors import JournalError, JournalFailed
from trajlake.runtime.wal.reader import iter_events
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TOOLS = ("losetup", "mkfs.ext4", "mount", "umount", "fallocate", "filefrag")
SEGMENT_BYTES = 512 * 1024
OPTIONS = WriterOptions(segment_size_min_bytes=SEGMENT_BYTES, segment_size_max_bytes=SEGMENT_BYTES)
BLOCK = 4096


class Device:
    """A file system on a loop device over a file in a small tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.memory, self.mounted = folder / "memory", folder / "disk"
        self.memory.mkdir()
        self.mounted.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(self.memory))
        self.backing = self.memory / "backing"
        with self.backing.open("wb") as file:
            file.truncate(32 << 20)
        options = ["-b", str(BLOCK), "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-J", "size=4"]
        run("mkfs.ext4", "-q", *options, str(self.backing))
        run("fallocate", "-l", "32M", str(self.backing))  # every block has its memory, but those punched out later
        self.loop = run("losetup", "-f", "--show", str(self.backing)).strip()
        run("mount", self.loop, str(self.mounted))

    def punch(self, path: Path, start: int) -> None:
        """Take the blocks of a file from byte `start` on, which hold zeros, out of the backing file."""
        found = 0
        for line in run("filefrag", "-v", "-b4096", str(path)).splitlines():
            extent = re.match(r"\s*\d+:\s*(\d+)\.\.\s*(\d+):\s*(\d+)\.\.\s*(\d+):", line)
            if extent is None:
                continue
            first, last, physical = int(extent[1]), int(extent[2]), int(extent[3])
            skip = max(0, start // BLOCK - first)
            count = last - first + 1 - skip
            if count > 0:
                place = ["--offset", str((physical + skip) * BLOCK), "--length", str(count * BLOCK)]
                run("fallocate", "--punch-hole", *place, str(self.backing))
                found += count
        assert found, f"{path}: no extents"

    def fill(self) -> None:
        with (self.memory / "full").open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
                file.flush()

    def mount_anew(self) -> None:
        """Give the memory back, and drop everything that only the page cache holds."""
        (self.memory / "full").unlink()
        run("umount", str(self.mounted))
        run("mount", self.loop, str(self.mounted))

    def close(self) -> None:
        for command in (
            ["umount", "-l", str(self.mounted)],
            ["losetup", "-d", self.loop],
            ["umount", "-l", str(self.memory)],
        ):
            subprocess.run(command, capture_output=True, check=False)


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"a failing disk needs root and {', '.join(missing) or 'nothing else'}")
    try:
        made = Device(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device here: {error.stderr.strip()}")
    yield made
    made.close()


def event(number: int) -> Event:
    """Event `number`: its frame fills a page, the first one together with the TRAJECTORY frame before it."""
    return event_of("t", number, size=BLOCK - HEADER_SIZE - (info_of("t").frame_size if number == 0 else 0))


def write_until(writer: Writer, acknowledged: list[int], stop: int) -> JournalError | None:
    for number in range(len(acknowledged), stop):
        try:
            writer.append([event(number)], info_of("t")).wait()
        except JournalError as error:
            return error
        acknowledged.append(number)
    return None


def spare_of(writer: Writer) -> Path:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = [path for path in Path(writer.folder).glob("*.tmp") if path.stat().st_size >= SEGMENT_BYTES]
        if found:
            time.sleep(0.3)  # its last piece may still be on its way
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no spare was made")


@pytest.mark.parametrize("spare_too", [False, True])
def test_a_barrier_that_fails_loses_nothing_that_was_acknowledged(device: Device, spare_too: bool) -> None:
    root = Root.open(device.mounted / "journal")
    writer = root.claim_writer(OPTIONS)
    acknowledged: list[int] = []
    assert write_until(writer, acknowledged, 20) is None
    spare = spare_of(writer)
    os.sync()
    (active,) = Path(writer.folder).glob("*.seg")
    device.punch(active, 31 * BLOCK)
    if spare_too:
        device.punch(spare, 0)
    device.fill()
    error = write_until(writer, acknowledged, 60)
    assert writer.stats().failed_over
    if spare_too:
        assert isinstance(error, JournalFailed)
        with pytest.raises(JournalFailed):
            writer.append([event_of("t", 0)], info_of("t"))
    else:
        assert error is None
        assert len(acknowledged) == 60
    writer.close()
    device.mount_anew()
    root = Root.open(device.mounted / "journal", create=False)
    with root.claim_writer(OPTIONS) as recovered:
        found = [e for w in root.writers() for e in iter_events(REAL_ENV, root.writer_folder(w))]
        assert plain(found) == plain([event(number) for number in range(len(found))])
        assert len(found) >= len(acknowledged) >= 20
        assert recovered.writer_id == writer.writer_id
