"""Group `journal`, files: recovery, opening a large root, scans into Arrow, and what long or bulky runs leave.

CPU seconds, not wall clock: reading from the page cache and checking are the CPU's work, and other processes are not
in them. Both sides of a ratio are measured in turn; medians.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from tests.benchmarks.measure import Row
from tests.benchmarks.segment_arrow import read_table
from tests.support.bare_writer import WRITER_ID, BareWriter, group
from tests.support.events import event_of, info_of
from trajlake.runtime import Journal
from trajlake.runtime.env import REAL_ENV, read_file
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import HEADER_SIZE, prepare
from trajlake.runtime.wal.reader import list_segments, read_segment
from trajlake.runtime.wal.recovery import recover_writer
from trajlake.runtime.wal.segment import Group, write_sealed
from trajlake.runtime.wal.segment_format import HEADER_LENGTH, new_header
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.events import VarSet

ROUNDS = 5
SEGMENT_BYTES = 64 << 20
SEGMENTS = 1000


def rows() -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as name:
        folder = Path(name)
        yield from recovery_and_scan(folder)
        yield from large_root(folder)
        yield from bulky_turns(folder)
        yield from long_run(folder)


def recovery_and_scan(folder: Path) -> Iterator[Row]:
    made = folder / "unsealed"
    events = make_unsealed(made)
    path = next(made.glob("*.seg"))
    frames = frames_of(path)
    sides: dict[str, Callable[[], None]] = {
        "crc of all bytes": lambda: _use(crc32(read_file(REAL_ENV, str(path)))),
        "crc of each frame": lambda: check_frames(str(path), frames),
        "recovery": lambda: recovered(made, folder / "mended"),
        "with the chain": lambda: recovered(made, folder / "mended", check_chain=True),
        "arrow": lambda: _use(read_table(str(next(iter(_sealed(folder / "mended")))))),
    }
    taken = cpu_seconds(sides)
    floor = taken["crc of each frame"]
    for side, bar in (("recovery", 2.5), ("with the chain", 4.5)):
        ratios = [a / b for a, b in zip(taken[side], floor, strict=True)]
        strict = statistics.median(a / b for a, b in zip(taken[side], taken["crc of all bytes"], strict=True))
        note = f"{_ms(taken[side])} against {_ms(floor)} ms; {strict:.2f} x one pass over all bytes"
        measure = f"recovery of a 64 MiB segment, {side}, by reading it and checking its CRCs"
        yield Row(measure, statistics.median(ratios), bar, "at most", "x", note)
    per_s = events / statistics.median(taken["arrow"])
    note = f"{events:,} events in {_ms(taken['arrow'])} ms of CPU; payloads are views into the file"
    yield Row("scan of sealed segments into Arrow", per_s, 1_000_000, "at least", "/s", note)


def make_unsealed(folder: Path) -> int:
    """A segment of nearly 64 MiB as a killed writer leaves it: 64 trajectories, 32 events of 1 KB in each barrier."""
    options = WriterOptions(segment_size_min_bytes=SEGMENT_BYTES, segment_size_max_bytes=SEGMENT_BYTES)
    writer = BareWriter(REAL_ENV, options=options, folder=str(folder))
    heads = [genesis("default", f"t{one}") for one in range(64)]
    count = 0
    while True:
        batch = []
        for place in range(32):
            one = (count + place) % 64
            event = make_event(
                VarSet(name="x", value=f"{count:08}" + "v" * 920), tenant="default", trajectory_id=f"t{one}",
                sequence_number=(count + place) // 64, fencing_token=1, turn=0, recorded_at=1_800_000_000_000_000,
                salt=(count + place).to_bytes(16, "big"), prev=heads[one],
            )  # fmt: skip
            heads[one] = event.hash
            batch.append(event)
        active = writer.chain._active
        if active is not None and not active.has_room([group([event]) for event in batch]):
            writer.chain.abandon()
            return count
        writer.write(*batch)
        count += 32


def frames_of(path: Path) -> list[tuple[int, int]]:
    """(offset, payload length) of every frame with a payload."""
    scan = read_segment(REAL_ENV, str(path))
    places = sorted([*scan.offsets, *scan.info_offsets])
    return [(at, struct.unpack_from("<I", scan.data, at + 4)[0]) for at in places]


def check_frames(path: str, frames: list[tuple[int, int]]) -> None:
    """The floor: read, and check both CRCs of every frame whose place is known already."""
    data = read_file(REAL_ENV, path)
    view, unpack = memoryview(data), struct.Struct("<I4xI").unpack_from
    for at, length in frames:
        start = at + HEADER_SIZE
        header_crc, payload_crc = unpack(data, at)
        assert crc32(view[at + 4 : start]) == header_crc
        assert crc32(view[start : start + length]) == payload_crc


def recovered(made: Path, target: Path, *, check_chain: bool = False) -> float:
    """Recover a fresh copy; returns the CPU seconds of the recovery alone."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(made, target)
    begun = time.process_time()
    recover_writer(REAL_ENV, str(target), WRITER_ID, check_chain=check_chain)
    return time.process_time() - begun


def large_root(folder: Path) -> Iterator[Row]:
    root = folder / "root"
    writer = root / "writers" / WRITER_ID.hex()
    writer.mkdir(parents=True)
    link = bytes(32)
    for number in range(SEGMENTS):
        header = new_header(REAL_ENV, WRITER_ID, number, number * 4, 0, link)
        frames = [prepare(event_of("t", number * 4 + one, size=1000), info_of("t")) for one in range(4)]
        link = write_sealed(REAL_ENV, str(writer), header, [Group(frames, info_of("t"))])

    def listed() -> None:
        for name in os.listdir(writer):
            fd = os.open(f"{writer}/{name}", os.O_RDONLY)
            os.pread(fd, HEADER_LENGTH, 0)
            os.close(fd)

    def opened() -> None:
        Root.open(root).claim_writer(WriterOptions(segment_size_min_bytes=8192)).close()

    taken = cpu_seconds({"listed": listed, "opened": opened})
    ratio = statistics.median(a / b for a, b in zip(taken["opened"], taken["listed"], strict=True))
    note = f"{_ms(taken['opened'])} against {_ms(taken['listed'])} ms"
    yield Row("open a root with 1,000 segments, by listing and reading headers", ratio, 5, "at most", "x", note)


def bulky_turns(folder: Path) -> Iterator[Row]:
    """One trajectory leaves 5 MB a turn; another commits small events meanwhile."""
    quiet = small_effects(folder / "quiet", threading.Event(), 2000)
    stop = threading.Event()
    loud: list[float] = []
    beside = threading.Thread(target=lambda: loud.append(small_effects(folder / "bulky", stop)))
    journal = Journal.open(folder / "bulky")

    @journal.tool(effect="read")
    def dump(number: int) -> str:
        return f"{number:08}" * (5_000_000 // 8)

    turns = int(os.environ.get("TRAJLAKE_BENCH_TURNS", "500"))

    def agent(t: object) -> None:
        for turn in t.turns(max=turns):  # type: ignore[attr-defined]
            turn.call("dump", {"number": turn.number})
        t.finish()  # type: ignore[attr-defined]

    beside.start()
    journal.run(agent, "bulky", task={})
    stop.set()
    beside.join()
    journal.close()
    scale = turns / 500
    size = sum(one.stat().st_size for one in (folder / "bulky" / "writers" / journal_writer(journal)).glob("*.seg"))
    note = f"{turns} turns; blobs hold the rest"
    yield Row("500 turns of 5 MB output: bytes in segments", size / 1e6 / scale, 5, "at most", "MB", note)
    note = f"{loud[0] * 1000:.2f} against {quiet * 1000:.2f} ms, in the same process as the bulk"
    yield Row("  p99 of another trajectory meanwhile", loud[0] / quiet, 1.5, "at most", "x", note)


def journal_writer(journal: Journal) -> str:
    """The writer directory that the journal's trajectory stands in."""
    (record,) = (one for one in _records(journal) if one.trajectory_id == "bulky")
    return record.tenures[-1].writer


def _records(journal: Journal) -> list:
    from trajlake.runtime.stores import lease_store

    return list(lease_store(journal.root).records())


def small_effects(folder: Path, stop: threading.Event, count_max: int = 1_000_000) -> float:
    """Commit 1 KB again and again through a writer of its own; return the p99 in seconds."""
    taken: list[float] = []
    with Root.open(folder).claim_writer() as writer:
        event, info = event_of("small", 0, size=1000), info_of("small")
        while not stop.is_set() and len(taken) < count_max:
            begun = time.perf_counter()
            writer.append([event], info).wait()
            taken.append(time.perf_counter() - begun)
            time.sleep(0.002)
    return sorted(taken)[len(taken) * 99 // 100]


def long_run(folder: Path) -> Iterator[Row]:
    sizes, texts = {}, {}
    for steps in (200, 400):
        journal = Journal.open(folder / f"steps{steps}")

        @journal.tool(effect="read")
        def note(text: str) -> str:
            return text[:1000]

        def agent(t: object, steps: int = steps) -> None:
            for turn in t.turns(max=steps):  # type: ignore[attr-defined]
                turn.call("note", {"text": f"{turn.number:04}" + "x" * 996})
            t.finish()  # type: ignore[attr-defined]

        journal.run(agent, "long", task={})
        journal.close()
        scans = [read_segment(REAL_ENV, str(path)) for path in (folder / f"steps{steps}").glob("writers/*/*.seg")]
        sizes[steps] = sum(Path(scan.path).stat().st_size - 4096 for scan in scans)
        texts[steps] = sum(len(scan.offsets) for scan in scans)
    over = (sizes[400] - 400 * 2000) / texts[400]
    yield Row("400 steps of 2 KB: bytes per event over its new text", over, 350, "at most", "B", f"{texts[400]} events")
    yield Row("  bytes(400)/bytes(200)", sizes[400] / sizes[200], 2.1, "at most", "x", f"{sizes[400]:,} bytes")


def cpu_seconds(sides: dict[str, Callable[[], float | None]]) -> dict[str, list[float]]:
    """CPU seconds of each side and round; a side may return its own."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS + 1):
        for name, side in sides.items():
            begun = time.process_time()
            own = side()
            taken[name].append(time.process_time() - begun if own is None else own)
    return {name: values[1:] for name, values in taken.items()}


def _sealed(folder: Path) -> Iterator[str]:
    yield from (one.path for one in list_segments(REAL_ENV, str(folder)) if one.is_sealed)


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f}"


def _use(_: object) -> None:
    return None
