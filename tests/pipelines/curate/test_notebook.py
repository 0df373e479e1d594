"""The curation notebook runs from top to bottom on a tiny lake, and so do the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy_text, rewards


def test_the_notebook_runs_top_to_bottom(project: Path, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, [Run("one").simple("a"), Run("two").simple("b"), rewards({"one": 1, "two": 0})])
    (tmp_path / "policy.toml").write_text(policy_text(reward={"required": True}))
    env = {
        **os.environ,
        "TRAJLAKE_LAKE": lake,
        "TRAJLAKE_POLICY": str(tmp_path / "policy.toml"),
        "TMPDIR": str(tmp_path),
    }
    code = (
        "import runpy; app = runpy.run_path('notebooks/04_curate_sft.py')['app']; _, defs = app.run();"
        "assert defs['again'].differences == [], defs['again']; assert defs['done'].rows == 1;"
        "assert any(one['trains'] for one in defs['shown'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_commands_do_what_the_pages_say(tmp_path: Path, trajlake: Any) -> None:
    lake = lake_of(tmp_path, [Run("one").simple("a"), Run("two").simple("b"), rewards({"one": 1, "two": 0})])
    (tmp_path / "policy.toml").write_text(policy_text(reward={"required": True}))

    def run(*arguments: str, code: int = 0) -> str:
        done = trajlake(*arguments, timeout_s=100)
        assert done.returncode == code, done.stderr + done.stdout
        return str(done.stdout)

    assert "0 new findings" in run("scan", "--lake", lake)
    assert "low_reward 1" in run("curate", "sft", "--lake", lake, "--dry-run")
    assert not (tmp_path / "set").exists()
    made = json.loads(run("curate", "sft", "--lake", lake, "--out", "set", "--to", "openai,trl", "--json"))
    assert made["rows"] == 1
    assert "segment 0 is in" in run("curate", "explain", "one", "--lake", lake)
    assert "low_reward" in run("curate", "explain", "two", "--set", "set", code=1)
    assert "the same bytes" in run("curate", "rebuild", "set", "--out", "again", "--lake", lake)
    assert "0 sets" in run("curate", "recut", "--lake", lake)
    assert "masks something else" in run("curate", "check", "set", "--share", "1.0", code=1)
    starter = run("curate", "policy")
    assert "tenants" in starter
    refused = trajlake("curate", "sft", "--lake", lake, "--policy", "nosuch.toml", "--out", "x")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
