"""The notebook and the tutorial about crashes do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .notebook import run_notebook

BLOCK = re.compile(r"^```(?P<kind>python|console)(?P<marks>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_notebook_runs_top_to_bottom(tmp_path: Path, project: Path) -> None:
    run_notebook(project / "notebooks" / "02_crash_and_resume.py", tmp_path / "lake")


def test_the_tutorial_does_what_it_says(tmp_path: Path, project: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRAJLAKE_")} | {"PATH": path}
    shown = ""
    for block in BLOCK.finditer((project / "runtime" / "TUTORIAL.md").read_text()):
        marks = dict(mark.split("=") for mark in block["marks"].split())
        if block["kind"] == "python":
            (tmp_path / marks["file"]).write_text(block["body"])
            continue
        for line in block["body"].splitlines():
            command = line.removeprefix("$ ")
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == int(marks.get("exit", 0)), f"{command}\n{done.stdout}{done.stderr}"
            shown += done.stdout
    for text in ("order 7", "was charge (", "completed: charged and noted", "restored"):
        assert text in shown, text
