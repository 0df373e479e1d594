# ruff: noqa: E501 - the table shows each change on one line
"""Takes out of the journal one sync, order or check at a time; a test must fail for each.

`python -m tests.crash.mutations [name ...]` tries all (or the named) on a copy of the tree and prints a table.
An `equivalent` mutant has a reason why no test can tell it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
PACKAGES = ("schemas", "runtime", "ingest", "pipelines", "sql")
TESTS = (
    "tests/crash/test_power_loss.py",
    "tests/crash/test_cut_segments.py",
    "tests/runtime/storage",
    "tests/golden/test_segments.py",
    "tests/properties/test_segment_fuzz.py",
)
RETENTION = "tests/runtime/storage/test_retention.py"
GARBAGE = "tests/runtime/storage/test_garbage.py"
LEADING = "tests/runtime/storage/test_leading.py"
BACKUP = "tests/runtime/storage/test_backup.py"


class Mutation(NamedTuple):
    """One change of one file: `before` (which stands there `count` times) becomes `after`."""

    name: str
    file: str
    before: str
    after: str
    equivalent: str = ""
    tests: str = ""
    """The tests that are to notice, where not all of `TESTS` need to run."""


MUTATIONS = [
    Mutation("barrier of a batch", "wal/segment.py", "count = env.pwrite_durably(self._fd", "count = env.pwrite(self._fd"),
    Mutation("barrier in a call of its own", "wal/segment.py", "            env.fdatasync(self._fd)\n        self._settle", "            pass\n        self._settle"),
    Mutation("sync of a new segment", "wal/segment.py", "            env.fdatasync(fd)\n            env.rename(spare", "            env.rename(spare"),
    Mutation("folder sync of a new segment", "wal/segment.py", "            env.fsync_dir(folder)\n", "            pass\n"),
    Mutation("name before content of a new segment", "wal/segment.py",
             "            write_fully(env, fd, segment._block + body, 0)\n            env.fdatasync(fd)\n"
             "            env.rename(spare, segment.path)\n            env.fsync_dir(folder)\n",
             "            env.rename(spare, segment.path)\n            env.fsync_dir(folder)\n"
             "            write_fully(env, fd, segment._block + body, 0)\n            env.fdatasync(fd)\n"),
    Mutation("sync of the zeros", "wal/segment.py", "            env.fdatasync(fd)\n    except OSError", "            pass\n    except OSError",
             "the header's fdatasync covers the whole file; this one only keeps the bulk out of that barrier"),
    Mutation("sync of the SEAL before the cut", "wal/segment.py", "        self._env.fdatasync(self._fd)\n", ""),
    Mutation("a byte behind the SEAL before the cut", "wal/segment.py", "return end < self.header", "return end <= self.header"),
    Mutation("a waiter is noted before the state is looked at", "wal/ticket.py",
             "            self.waiters.append(lock)\n            if self.lazy:\n                self.flusher.hurry(self, None)\n            if self.state == WAITING and not",
             "            waiting = self.state == WAITING\n            self.waiters.append(lock)\n            if self.lazy:\n                self.flusher.hurry(self, None)\n            if waiting and not"),
    Mutation("a waiting thread writes in its turn only", "wal/flusher.py", "if not self._asleep or not self._turn.acquire(blocking=False):", "if not self._asleep:", tests=LEADING),
    Mutation("the flusher writes in its turn only", "wal/flusher.py", "max(0.0, self._alarm - now))\n        self._turn.acquire()\n", "max(0.0, self._alarm - now))\n", tests=LEADING),
    Mutation("what came while a thread wrote is written next", "wal/flusher.py", "came = self._commit.due_at() is not None or self._seal_asked", "came = False", tests=LEADING),
    Mutation("a window that is open when a thread would write", "wal/flusher.py", "                self._turn.release()\n                self._ring()\n", "                self._turn.release()\n", tests=LEADING),
    Mutation("events that did not fit into the batch of who waits", "wal/flusher.py", "return append.state != WAITING  #", "return True  #", tests=LEADING),
    Mutation("a close that came while a thread wrote", "wal/flusher.py", "if came or self._commit.closing or", "if came or", tests=LEADING),
    Mutation("the age of a segment that a waiting thread began", "wal/flusher.py", " or self._is_seal_due_before_alarm():", ":", tests=LEADING),
    Mutation("an error in a thread that writes ends the journal", "wal/flusher.py", "        except JournalError as error:\n            self._end(error)\n        except BaseException as error:\n            self._end(JournalFailed(f\"the thread", "        except JournalError as error:\n            pass\n        except BaseException as error:\n            (JournalFailed(f\"the thread", tests=LEADING),
    Mutation("the main thread never writes", "wal/flusher.py", " or get_ident() == self._main_thread:", ":", tests=LEADING),
    Mutation("short count of a batch", "wal/segment.py", "if count != len(data):", "if False:"),
    Mutation("short count of a plain write", "env.py", "        written += count\n", "        written = len(data)\n"),
    Mutation("rewind after a failed batch", "wal/segment.py", "        self.index.rewind(self._durable_mark)\n", "        pass\n"),
    Mutation("sync of copied frames", "wal/segment.py", "        env.fdatasync(fd)\n    finally", "        pass\n    finally"),
    Mutation("folder sync of copied frames", "wal/segment.py", "    env.fsync_dir(folder)\n    return seal_hash(seal)", "    return seal_hash(seal)"),
    Mutation("copy before the old segment is sealed", "wal/recovery.py",
             "        link = write_sealed(env, folder, header, groups)\n",
             "        _seal_in_place(env, folder, scan, keep, seal)\n        link = write_sealed(env, folder, header, groups)\n"),
    Mutation("copying what is not proved", "wal/recovery.py", "keep, last = scan.proved, scan.last_lsn", "keep, last = len(scan.offsets), scan.last_lsn"),
    Mutation("sync of a SEAL in place", "wal/recovery.py", "            env.fdatasync(fd)\n", ""),
    Mutation("stop at corruption", "wal/recovery.py", '    if scan.end == "corrupt":\n', "    if False:\n"),
    Mutation("frames before a successor must be there", "wal/recovery.py", "if not 0 <= keep <= len(scan.offsets):", "if False:"),
    Mutation("gap between segments in recovery", "wal/recovery.py", "following.first_lsn != next_lsn:", "False:"),
    Mutation("gap between segments in reading", "wal/reader.py", "if expected >= 0 and segment.first_lsn != expected:", "if False:"),
    Mutation("successor takes over in reading", "wal/reader.py", "    end = last if stop_lsn is None else min(last, stop_lsn)\n", "    end = last\n"),
    Mutation("second look at corruption", "wal/reader.py", '    if scan.end == "corrupt":\n        scan = scan_segment', '    if False:\n        scan = scan_segment',
             "a race of one read against two barriers; the reader beside a busy writer meets it by luck only"),
    Mutation("proof by a later barrier", "wal/segment_scan.py", "header.lsn - header.batch_position > missing", "False"),
    Mutation("a frame of the same barrier is no proof", "wal/segment_scan.py", "header.lsn - header.batch_position > missing", "header.lsn > missing"),
    Mutation("a SEAL as proof", "wal/segment_scan.py", "sealed = header.type_code == CONTROL_SEAL and start > 0", "sealed = False"),
    Mutation("proved by the next barrier only", "wal/segment_scan.py", "            scan.proved = len(offsets)\n        ordinal", "            scan.proved = len(offsets) + 1\n        ordinal"),
    Mutation("lsn of a frame", "wal/segment_scan.py", "            or lsn != next_lsn\n", ""),
    Mutation("payload CRC in the walk", "wal/segment_scan.py", "crc(data[start:end]) != payload_crc or ", ""),
    Mutation("header CRC in the walk", "wal/segment_scan.py", "            or header_crc != crc(data[at + 4 : start])\n", ""),
    Mutation("padding in the walk", "wal/segment_scan.py", "data[end:following] != PADDING[length & 7] or ", ""),
    Mutation("epoch in the walk", "wal/segment_scan.py", "            frame_epoch != epoch\n            or ", "            "),
    Mutation("length in the walk", "wal/segment_scan.py", "            or not 0 < length <= FRAME_MAX\n", ""),
    Mutation("batch position in the walk", "wal/segment_scan.py", "            or (position and position != next_position)\n", ""),
    Mutation("payload CRC", "wal/frame.py", "crc32(payload) != header.payload_crc or", "False or"),
    Mutation("header CRC", "wal/frame.py", "or header.header_crc != crc32(data[offset + 4 : offset + HEADER_SIZE])", ""),
    Mutation("padding", "wal/frame.py", " or any(data[end : offset + frame_size(header.payload_length)])", ""),
    Mutation("epoch", "wal/frame.py", "        header.epoch != epoch\n        or ", "        "),
    Mutation("whole-segment checksum", "wal/segment_scan.py", "if crc32(data[:start]) != seal.checksum:", "if False:"),
    Mutation("whole-segment checksum of columns", "wal/columns.py", "if computed != seal.checksum:", "if False:"),
    Mutation("one fail-over only", "wal/segment_chain.py", "if self.failed_over is not None:", "if False:"),
    Mutation("no intent on a full disk", "wal/segment_chain.py", "        if self.space_low:\n", "        if False:\n"),
    Mutation("sync of a small file", "env.py",
             "            write_fully(env, fd, data[offset : offset + PIECE_BYTES], offset)\n            env.fdatasync(fd)\n",
             "            write_fully(env, fd, data[offset : offset + PIECE_BYTES], offset)\n"),
    Mutation("folder sync of a replaced file", "env.py", "    env.rename(temporary, path)\n    env.fsync_dir(folder)\n", "    env.rename(temporary, path)\n"),
    Mutation("folder sync of a created file", "env.py", "        env.unlink(temporary)\n    env.fsync_dir(folder)\n", "        env.unlink(temporary)\n"),
    Mutation("folder sync of a new folder", "env.py", '        env.fsync_dir(folder.rpartition("/")[0] or "/")\n', ""),
    Mutation("hash of a blob on reading", "blob_store.py", "if sha256_of(data).hexdigest() != sha256:", "if False:"),
    Mutation("bytes of a blob that is there", "blob_store.py", "return read_file(self._env, path) == data", "return bool(self._env.stat(path))"),
    Mutation("folder sync of a blob that was there", "blob_store.py", '                self._env.fsync_dir(path.rpartition("/")[0])\n', ""),
    Mutation("names of a folder found", "durable_folders.py", "            self._env.fsync_dir(name or \"/\")\n", "            pass\n"),
    Mutation("sync between two segments that are dropped", "upkeep/retention.py", "        root.env.fsync_dir(root.writer_folder(writer))\n", "        pass\n", tests=RETENTION),
    Mutation("a writer's last segment stays", "upkeep/retention.py", "segments[:-1]:", "segments:", tests=RETENTION),
    Mutation("events of open trajectories stay", "upkeep/retention.py", "0 if open_too else", "0 if True else", tests=RETENTION),
    Mutation("landing holds the same bytes", "upkeep/landed.py", "if there != data:", "if False:", tests=RETENTION),
    Mutation("landing holds the blobs", "upkeep/landed.py", "if blob is None or sha256_of(blob).hexdigest() != sha256:", "if False:", tests=RETENTION),
    Mutation("a released head closes a tenure", "upkeep/ended.py", "record.tenures[-1].released_head is None", "False", tests=RETENTION),
    Mutation("24 hours of a blob", "upkeep/garbage.py", "if facts.modified_at_us > began_us - DAY_US:", "if False:", tests=GARBAGE),
    Mutation("blobs that blobs name", "upkeep/garbage.py", "        unnamed -= _named_by_blobs", "        _named_by_blobs", tests=GARBAGE),
    Mutation("writers of open trajectories", "upkeep/garbage.py", "if writer in ended.open_writers:", "if False:", tests=GARBAGE),
    Mutation("a writer leaves by one rename", "upkeep/garbage.py", "        env.rename(folder, hidden)\n", "        hidden = folder\n", tests=GARBAGE),
    Mutation("lock of a writer that is removed", "upkeep/garbage.py", "    if root.env.flock(lock, exclusive=True):\n", "    if True:\n", tests=GARBAGE),
    Mutation("a writer that went is not made again", "root.py", "        if create:\n", "        if True:\n", tests=GARBAGE),
    Mutation("a writer closed for good", "root.py", 'if exists(self.env, f"{folder}/{CLOSED_FILE}"):', "if False:", tests=BACKUP),
    Mutation("a generation for each restored trajectory", "upkeep/restore.py", "take_generation(judge, key, _generation_after(text), marker)", "_generation_after(text)", tests=BACKUP),
    Mutation("checksums of a backup", "upkeep/restore.py", "if len(data) != file.size_bytes or sha256_of(data).hexdigest() != file.sha256:", "if False:", tests=BACKUP),
    Mutation("a root gets its name when it is whole", "upkeep/restore.py", 'building = f"{target}.{env.random_bytes(6).hex()}.restoring"', "building = target", tests=BACKUP),
    Mutation("lock of a writer", "root.py", "if not self.env.flock(lock, exclusive=True):", "if False:"),
]  # fmt: skip


def run(mutation: Mutation, jobs: Path) -> tuple[bool, str]:
    """Return whether a test failed with the mutation in place, and the last line of what pytest said."""
    with tempfile.TemporaryDirectory(dir=jobs) as name:
        copy = Path(name)
        (copy / "names" / "trajlake").mkdir(parents=True)
        for package in PACKAGES:
            shutil.copytree(PROJECT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
            (copy / "names" / "trajlake" / package).symlink_to(copy / package)
        for other in ("tests", "pyproject.toml"):
            (copy / other).symlink_to(PROJECT / other)
        source = copy / "runtime" / mutation.file
        text = source.read_text()
        if mutation.before not in text:
            return False, f"{mutation.file} no longer holds the text that is to go: {mutation.before!r}"
        source.write_text(text.replace(mutation.before, mutation.after, 1))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *([mutation.tests] if mutation.tests else TESTS),
        ]
        environment = {**os.environ, "PYTHONPATH": str(copy / "names"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode == 1, (failed or done.stdout.splitlines() or [done.stderr])[-1][:150]


def main() -> int:
    wanted = sys.argv[1:]
    survivors = 0
    with tempfile.TemporaryDirectory() as jobs:
        for mutation in MUTATIONS:
            if wanted and mutation.name not in wanted:
                continue
            caught, line = run(mutation, Path(jobs))
            verdict = "caught" if caught else "equivalent" if mutation.equivalent else "SURVIVED"
            survivors += verdict == "SURVIVED"
            print(f"{verdict:10} | {mutation.name} | {line}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main())
