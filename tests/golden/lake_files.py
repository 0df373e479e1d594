"""Golden lakes, one of each format: a small lake as one text file of its files, and its rows as JSON.

`python -m tests.golden.lake_files` writes those of the newest format anew; the older ones stay as they were written.
This version must read and write the lakes of all of them.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent / "lakes"
VERSIONS: Final = (1, 2)
"""1: one object for each blob. 2: sources of imports stand in packs."""
CHAT: Final = '{"messages":[{"role":"user","content":"2+%d?"},{"role":"assistant","content":"%d"}]}\n'


def files_of(version: int) -> Path:
    return HERE / f"version{version}.files.json"


def rows_of(version: int) -> Path:
    return HERE / f"version{version}.rows.json"


def unpack(version: int, to: Path) -> Path:
    """Write a golden lake below `to` and return it."""
    for name, text in json.loads(files_of(version).read_text()).items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(base64.b85decode(text)))
    return to


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as JSON holds them."""

    def text(value: Any) -> Any:
        return value.isoformat() if isinstance(value, dt.date | dt.datetime) else value

    return [{name: text(value) for name, value in row.items()} for row in rows]


def write() -> None:
    """Make the lake by today's code and pack it."""
    from tests.pipelines.lakes import everything
    from tests.pipelines.segments import Story, land
    from trajlake.pipelines.compaction.compact import compact

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        story = Story("golden").start(subjects=("ada",)).say("hello", 2)
        land(home / "landing", b"a" * 16, 0, story.landed)
        compact(str(home / "landing"), str(home / "lake"))
        later = story.takeover(1, 2).say("again", 1).end()
        land(home / "landing", b"b" * 16, 0, later.landed[2:])
        compact(str(home / "landing"), str(home / "lake"))
        for number in range(2):
            (home / f"{number}.jsonl").write_text(CHAT % (number, number + 2))
        order = ("import", "openai-chat", "0.jsonl", "1.jsonl", "--lake", "lake")
        subprocess.run([sys.executable, "-m", "trajlake.runtime", *order], cwd=home, check=True, stdout=sys.stderr)
        files = {
            str(path.relative_to(home / "lake")): base64.b85encode(zlib.compress(path.read_bytes(), 9)).decode()
            for path in sorted((home / "lake").rglob("*"))
            if path.is_file()
        }
        HERE.mkdir(exist_ok=True)
        files_of(VERSIONS[-1]).write_text(json.dumps(files, indent=0) + "\n")
        rows = {table: plain(found) for table, found in everything(home / "lake").items()}
        rows_of(VERSIONS[-1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    write()
    written = files_of(VERSIONS[-1]), rows_of(VERSIONS[-1])
    sys.stdout.write(f"{sum(path.stat().st_size for path in written)} bytes\n")
