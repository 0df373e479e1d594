"""The notebook on audits runs from top to bottom over a tiny lake and shows what the lake holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pipelines.audit_lakes import make_lake
from tests.pipelines.test_audit_command import breaking, clean

NOTEBOOK = Path("notebooks") / "05_audit_a_lake.py"


def test_the_notebook_runs_over_a_tiny_lake_and_finds_its_violation(tmp_path: Path, project: Path) -> None:
    lake = make_lake(tmp_path, [breaking("one"), clean("two")])
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "marimo", "export", "html", str(project / NOTEBOOK), "-o", str(page)],
        env={**os.environ, "TRAJLAKE_LAKE": lake},
        cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "decision before it: none" in page.read_text()
