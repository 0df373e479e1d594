"""Runs benchmark groups: `run.py [GROUP...]`. Prints a table, writes bench-results/<group>.json.

A group is every `bench_<group>.py` and `bench_<group>_*.py` beside this file; each has `rows()`, which yields `Row`s.
Exit 1 when a bar is missed, 2 for an unknown group.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path.insert(0, str(PROJECT))

from tests.benchmarks.measure import Row  # noqa: E402  # the path to the project comes first


def groups() -> dict[str, list[str]]:
    """Return group -> its modules, by the files that are here."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("bench_*.py")):
        group = path.stem.removeprefix("bench_").partition("_")[0]
        found.setdefault(group, []).append(f"tests.benchmarks.{path.stem}")
    return found


def run(modules: list[str]) -> Iterator[Row]:
    for name in modules:
        for row in importlib.import_module(name).rows():
            sys.stdout.write(line(row) + "\n")
            sys.stdout.flush()
            yield row


def line(row: Row) -> str:
    bar = "" if row.bar is None else f"{row.direction} {row.bar:g}"
    met = {None: "", True: "met", False: "MISSED"}[row.met]
    return f"{row.measure:<62} {row.value:>10.3g} {row.unit:<6} {bar:<16} {met:<6} {row.note}"


def main(wanted: list[str]) -> int:
    known = groups()
    unknown = [group for group in wanted if group not in known]
    if unknown:
        sys.stderr.write(f"bench: no group {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    missed = 0
    results = PROJECT / "bench-results"
    results.mkdir(exist_ok=True)
    for group in wanted or list(known):
        sys.stdout.write(f"\n{group}\n")
        rows = list(run(known[group]))
        missed += sum(row.met is False for row in rows)
        text = msgspec.json.encode([{**row._asdict(), "met": row.met} for row in rows])
        (results / f"{group}.json").write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
