"""`import --lake` over what is there already: nothing is loaded, nothing is missed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import Command
from trajlake.pipelines.compaction.small_work import nothing_new

CHAT = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def imported(trajlake: Command, *paths: str) -> dict[str, object]:
    done = trajlake("import", "openai-chat", *paths, "--lake", "lake", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)["lake"]
    return report


def write_chat(path: Path, question: str) -> None:
    path.write_text(json.dumps({"messages": [{"role": "user", "content": question}, CHAT["messages"][1]]}) + "\n")


def test_an_unchanged_file_is_answered_from_the_snapshot_and_a_new_one_is_taken(
    trajlake: Command, tmp_path: Path
) -> None:
    landing, lake = str(tmp_path / "lake/_trajlake/inbox/landing"), str(tmp_path / "lake")
    write_chat(tmp_path / "a.json", "one?")
    first = imported(trajlake, "a.json")
    assert first["outcome"] == "committed"
    assert nothing_new(landing, lake) == first["snapshot"]
    assert imported(trajlake, "a.json") == {"outcome": "nothing_to_do", "snapshot": first["snapshot"]}
    write_chat(tmp_path / "b.json", "two?")
    assert imported(trajlake, "a.json", "b.json")["outcome"] == "committed"


def test_a_landed_segment_that_no_snapshot_covers_is_work_to_do(trajlake: Command, tmp_path: Path) -> None:
    write_chat(tmp_path / "a.json", "one?")
    imported(trajlake, "a.json")
    snapshots = sorted((tmp_path / "lake/_trajlake/snapshots").iterdir(), key=lambda path: int(path.stem))
    snapshots[-1].unlink()
    assert nothing_new(str(tmp_path / "lake/_trajlake/inbox/landing"), str(tmp_path / "lake")) is None
    assert nothing_new(str(tmp_path / "lake/_trajlake/inbox/landing"), str(tmp_path / "no lake")) is None


def test_the_look_loads_no_engine() -> None:
    code = (
        "import sys, trajlake.pipelines.compaction.small_work; "
        "print(*sorted({'polars', 'pyarrow', 'deltalake', 'duckdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
