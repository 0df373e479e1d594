"""The counts that the manifest of ../shared/data states, read out of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Stated(NamedTuple):
    turns: int
    calls: int
    unanswered: int
    longest_output: int


def stated(shared_data: Path, folder: str) -> dict[str, Stated]:
    """File name -> counts, for one folder's table."""
    text = (shared_data / "MANIFEST.md").read_text()
    section = text.partition(f"\n## {folder}\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 10 or not cells[5].replace(",", "").isdigit():
            continue
        numbers = [int(cell.replace(",", "")) for cell in cells[5:9]]
        found[cells[0]] = Stated(*numbers)
    return found
