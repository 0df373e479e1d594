"""`trajlake demo`: the main job, told step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where everything of the demo is kept.")] = Path(
        "trajlake-demo"
    ),
) -> None:
    """Kill an agent between an effect and its result, resume it, ship, compact and query. Under two minutes.

    Stays inside its folder, which is made anew each time, and on loopback. Exit 3 if a step does not come out as told.
    """
    from ..demo.story import Story

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    Story(folder, say).tell()
