"""Runs a notebook top to bottom in a process of its own, as `marimo export` would, over a lake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_notebook(path: Path, lake: Path, timeout_s: float = 120) -> None:
    """Raise `AssertionError` with the notebook's own words when a cell fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAJLAKE_")}
    done = subprocess.run(
        [sys.executable, str(path)],
        env=environment | {"TRAJLAKE_LAKE": str(lake)},
        cwd=lake.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{path.name}\n{done.stdout}{done.stderr}"
