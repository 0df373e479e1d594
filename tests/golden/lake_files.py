"""The golden lake of this version: a small lake as one text file of its files, and its rows as JSON.

`python -m tests.golden.lake_files` writes both anew; until the first release they follow the schemas. A later version
must read and write the lakes of the versions before it.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent / "lakes"
FILES: Final = HERE / "version1.files.json"
ROWS: Final = HERE / "version1.rows.json"


def unpack(to: Path) -> Path:
    """Write the golden lake below `to` and return it."""
    for name, text in json.loads(FILES.read_text()).items():
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
        files = {
            str(path.relative_to(home / "lake")): base64.b85encode(zlib.compress(path.read_bytes(), 9)).decode()
            for path in sorted((home / "lake").rglob("*"))
            if path.is_file()
        }
        HERE.mkdir(exist_ok=True)
        FILES.write_text(json.dumps(files, indent=0) + "\n")
        rows = {table: plain(found) for table, found in everything(home / "lake").items()}
        ROWS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    write()
    sys.stdout.write(f"{FILES.stat().st_size + ROWS.stat().st_size} bytes\n")
