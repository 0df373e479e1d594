"""Crash-tests several of the agents in one process: `python -m tests.runtime.crashtest.wrong_agents SAMPLE NAME=AT...`.

AT is a boundary; with SAMPLE above 0, so many boundaries of each instead. Prints one JSON object: name -> report.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any

import msgspec

from trajlake.runtime.commands.run import runner_of
from trajlake.runtime.crashing.campaign import Campaign, Choice
from trajlake.runtime.crashing.life import Plan


def crashtest(name: str, choice: Choice) -> dict[str, Any]:
    """Return the report of one agent of the current folder."""
    plan = Plan(
        load=lambda: runner_of(choice.agent, None, None, None), trajectory_id=name, task="go", import_path=os.getcwd()
    )
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="crashtest-"))
    try:
        return Campaign(plan, choice, scratch).run(lambda *_: None).as_json()
    finally:
        shutil.rmtree(scratch)


def main(sample: int, names: list[str]) -> None:
    reports = {}
    for name, _, at in (one.partition("=") for one in names):
        where: dict[str, Any] = {"sample": sample} if sample else {"at": (at,)}
        reports[name] = crashtest(name, Choice(agent=f"{name}:agent", seed=20261130, **where))
    print(msgspec.json.encode(reports).decode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
