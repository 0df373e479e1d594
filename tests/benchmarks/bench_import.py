"""Group `import`: foreign sessions to queryable tables, against the readers people use, on copies of real files.

Needs `../shared/data`. The peers want a Python of their own (3.13 or newer for atif-sql): name one that has
agent-trajectory 0.4.3, atif-sql 0.4.0 and duckdb as TRAJLAKE_IMPORT_PEERS; without it their rows are left out.

Both sides run from compiled Python, as pip leaves it: ours gets a folder for it and one small import beforehand, where
the environment forbids to write any. Memory is watched in a run of its own, because watching slows what is watched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.benchmarks.import_corpus import write_corpus
from tests.benchmarks.measure import Row, interleaved, median_ratio

CORPUS_BYTES = int(os.environ.get("TRAJLAKE_IMPORT_BYTES", "140000000"))
ROUNDS = int(os.environ.get("TRAJLAKE_IMPORT_ROUNDS", "3"))
PROJECT = Path(__file__).resolve().parents[2]
SHARED = PROJECT.parent / "shared" / "data" / "claude-code"
PEERS = {"agent-trajectory": 1.3, "atif-sql": 1.6}


def rows() -> Iterator[Row]:
    if not SHARED.is_dir():
        sys.stdout.write("import: skipped, no ../shared/data beside the project\n")
        return
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        yield from _rows(Path(folder))


def _rows(work: Path) -> Iterator[Row]:
    size = write_corpus(SHARED, work / "corpus", CORPUS_BYTES)
    compiled = work / "compiled"
    write_corpus(SHARED, work / "first", 1)
    _import(work / "first", work / "none", compiled)

    def ours() -> float:
        shutil.rmtree(work / "lake", ignore_errors=True)
        return _import(work / "corpus", work / "lake", compiled)

    sides = {"ours": ours}
    python = os.environ.get("TRAJLAKE_IMPORT_PEERS")
    for peer in PEERS if python else ():
        sides[peer] = lambda peer=peer: _peer(str(python), peer, work)  # type: ignore[misc]
    seconds = interleaved(sides, ROUNDS)
    spread = "-".join(f"{value:.1f}" for value in (min(seconds["ours"]), max(seconds["ours"])))
    for peer, bar in PEERS.items():
        if peer in seconds:
            ratio = median_ratio(seconds[peer], seconds["ours"])
            yield Row(f"import --lake, {size / 1e6:.0f} MB, against {peer}", ratio, bar, "at least", note=f"{spread} s")
    yield Row("import --lake, seconds", sorted(seconds["ours"])[ROUNDS // 2], unit="s")
    again = _import(work / "corpus", work / "lake", compiled)
    yield Row("unchanged folder imported again", again, 1, "at most", unit="s")
    yield Row("lake bytes per source byte, copies, after import", _stored(work / "lake") / size, 0.3, "at most")
    _trajlake(compiled, "maintain", "--keep", "0s", "--lake", str(work / "lake"))
    yield Row("lake bytes per source byte, copies, after maintain", _stored(work / "lake") / size, 0.3, "at most")
    yield _recorded(work, compiled)
    for name, corpus in (("the whole", work / "corpus"), ("a quarter", work / "part")):
        if not corpus.exists():
            write_corpus(SHARED, corpus, CORPUS_BYTES // 4)
        shutil.rmtree(work / "watched", ignore_errors=True)
        peak: list[int] = []
        _import(corpus, work / "watched", compiled, peak)
        yield Row(f"import --lake of {name}, PSS of the tree", max(peak) / 1e6, 250, "at most", unit="MB")


def _recorded(work: Path, compiled: Path) -> Row:
    """The recorded sessions themselves: no two alike, and so few that half of the lake is its files' own structure."""
    once = [path for folder in ("claude-code", "pi") for path in sorted((SHARED.parent / folder).glob("*.jsonl"))]
    lake = str(work / "once")
    _trajlake(compiled, "import", "auto", *map(str, once), "--lake", lake)
    _trajlake(compiled, "maintain", "--keep", "0s", "--lake", lake)
    size = sum(path.stat().st_size for path in once)
    measure = "lake bytes per source byte, each file once, after maintain"
    return Row(measure, _stored(Path(lake)) / size, None, "reported", note=f"{size / 1e6:.1f} MB")


def _stored(lake: Path) -> int:
    return sum(path.stat().st_size for path in lake.rglob("*") if path.is_file() and "inbox" not in path.parts)


def _trajlake(compiled: Path, *arguments: str) -> None:
    """Run a verb; an import of recorded sessions may end with findings."""
    command = [sys.executable, "-m", "trajlake.runtime", *arguments]
    subprocess.run(command, env=_with_bytecode(compiled), capture_output=True, check=False)


def _import(corpus: Path, lake: Path, compiled: Path, peak: list[int] | None = None) -> float:
    command = [sys.executable, "-m", "trajlake.runtime", "import", "claude-code", str(corpus), "--lake", str(lake)]
    environment = _with_bytecode(compiled)
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        if peak is not None:
            _watch(process.pid, peak)
        process.wait()
        took = time.perf_counter() - begun
    assert process.returncode == 0, process.returncode
    return took


def _with_bytecode(compiled: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(compiled)}


def _watch(pid: int, peak: list[int]) -> None:
    """Note the summed PSS of a process tree until it ends."""
    try:
        top = psutil.Process(pid)
        while top.is_running() and top.status() != psutil.STATUS_ZOMBIE:
            tree = [top, *top.children(recursive=True)]
            peak.append(sum(_pss(one) for one in tree))
            time.sleep(0.05)
    except psutil.Error:
        return


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _peer(python: str, peer: str, work: Path) -> float:
    with tempfile.TemporaryDirectory(dir=work) as own:
        script = Path(__file__).with_name("import_peers.py")
        done = subprocess.run(
            [python, str(script), peer, str(work / "corpus"), own], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{peer}: {done.stderr[-500:]}"
        return float(done.stdout)
