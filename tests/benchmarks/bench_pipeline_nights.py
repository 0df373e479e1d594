"""Group `pipeline`, the rest: a second night, bytes in the lake per byte in the journal, blobs into the content store.

200,000 events, the nights 800,000, which are a gigabyte (`TRAJLAKE_BENCH_EVENTS` sets another size). Every run is a
process of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.bench_pipeline import with_bytecode
from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.benchmarks.pipeline_data import EVENTS_PER_TRAJECTORY, make_blob_landing, make_landing

EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "200000"))
NIGHT_EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "800000"))
"""A run costs some 0.3 s whatever it takes in: 1 % of a short night is less than that."""
ROUNDS = 3
BLOB_SEGMENTS, BLOBS_PER_SEGMENT, BLOB_LINES = 4, 60, 48_000
PROJECT = Path(__file__).resolve().parent.parent.parent
SHARED = PROJECT.parent / "shared" / "data"
SIDE = "tests.benchmarks.pipeline_side"


def rows() -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        home = Path(folder)
        yield second_night(home / "night")
        yield from lake_bytes(home)
        yield blobs(home / "blobs")


def run(module: str, landing: Path, out: Path, *flags: str) -> tuple[float, int]:
    """Run one side; return its seconds and rows."""
    command = [sys.executable, "-m", module, str(landing), str(out), *flags]
    env = with_bytecode(landing.parent)
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=env, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-400:]}")
    seconds, count = done.stdout.split()
    return float(seconds), int(count)


def second_night(home: Path) -> Row:
    """A night with 1 % new trajectories of the same tenants, days and models, against the first and an empty run."""
    made = make_landing(home / "landing", NIGHT_EVENTS)
    small = max(EVENTS_PER_TRAJECTORY, NIGHT_EVENTS // 100)
    first, count = run(SIDE, home / "landing", home / "lake", "derive")
    assert count == made
    empty = statistics.median(run(SIDE, home / "landing", home / "lake", "derive")[0] for _ in range(ROUNDS))
    seconds = []
    for night in range(ROUNDS):
        new = make_landing(home / "landing", small, seed=night + 2, per_segment=small)
        took, count = run(SIDE, home / "landing", home / "lake", "derive")
        assert count == new
        seconds.append(took)
    second = statistics.median(seconds)
    note = f"first {first:.1f} s, empty {empty:.2f} s, 1 % new {second:.2f} s; 1 is 5 % of the first plus an empty run"
    return Row("second night, 1 % new data", second / (0.05 * first + empty), 1.0, "at most", note=note)


def lake_bytes(home: Path) -> Iterator[Row]:
    """Bytes of all tables and objects per byte of segments and blobs, sources of imports counted on neither side."""
    for texts, bar in (("code", 0.20), ("prose", None)):
        place = home / texts
        make_landing(place / "landing", EVENTS, texts=texts)  # type: ignore[arg-type]
        run(SIDE, place / "landing", place / "lake", "derive")
        journal, lake = size(place / "landing"), size(place / "lake", without="_trajlake")
        note = f"{journal / 1e6:.0f} MB; {'source lines read again' if texts == 'code' else 'no line twice'}"
        direction = "at most" if bar else "reported"
        yield Row(f"lake bytes per journal byte, {texts}", lake / journal, bar, direction, note=note)
        shutil.rmtree(place)
    if SHARED.is_dir():
        yield real_bytes(home / "real")


def real_bytes(home: Path) -> Row:
    """The same over recorded sessions of every format, after `maintain`."""
    home.mkdir()
    trajlake = [sys.executable, "-m", "trajlake.runtime"]
    # Two of the files are damaged on purpose, so the import ends with findings.
    for verb, more in (("import", ("auto", str(SHARED))), ("maintain", ("--keep", "0s"))):
        subprocess.run([*trajlake, verb, *more, "--lake", "lake"], cwd=home, capture_output=True, check=False)
    from trajlake.pipelines.connect import connect

    sources = connect(home / "lake").execute(
        "select sum(bytes), sum(stored_bytes) from blobs where sha256 in (select sha256 from imports)"
    )
    plain, stored = sources.fetchone() or (0, 0)
    landing = home / "lake" / "_trajlake" / "inbox" / "landing"
    journal = size(landing / "writers") + size(landing / "blobs") - plain
    lake = size(home / "lake", without="_trajlake") - stored
    note = f"{journal / 1e6:.0f} MB of segments and blobs"
    return Row("lake bytes per journal byte, recorded sessions", lake / journal, 0.40, "at most", note=note)


def size(folder: Path, without: str = "") -> int:
    """Bytes of all files below, one entry of the folder left out."""
    return sum(
        path.stat().st_size
        for entry in folder.iterdir()
        if entry.name != without
        for path in ([entry] if entry.is_file() else entry.rglob("*"))
        if path.is_file()
    )


def blobs(home: Path) -> Row:
    """A whole run over segments that name blobs, against reading, hashing, packing and writing the blobs alone."""
    total = make_blob_landing(home / "landing", BLOB_SEGMENTS, BLOBS_PER_SEGMENT, BLOB_LINES)

    def side(module: str) -> float:
        shutil.rmtree(home / "out", ignore_errors=True)
        return run(module, home / "landing", home / "out")[0]

    found = interleaved({"plain": lambda: side("tests.benchmarks.plain_blobs"), "ours": lambda: side(SIDE)}, ROUNDS)
    rate = total / statistics.median(found["ours"]) / 1e6
    count = BLOB_SEGMENTS * BLOBS_PER_SEGMENT
    note = f"{total / 1e6:.0f} MB in {count} blobs, {rate:.0f} MB/s; commit and syncs in it"
    return Row("blobs into the content store", median_ratio(found["plain"], found["ours"]), 0.8, "at least", note=note)
