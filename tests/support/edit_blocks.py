"""A coding agent whose replies hold edits as text blocks, and two parsers of them: the loose one took fences too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from trajlake.runtime import Journal, ToolError
from trajlake.runtime.models import ScriptedReply, scripted

journal = Journal.open(os.environ.get("EDIT_BLOCKS_ROOT", "edit-blocks"))

BLOCK = re.compile(r"^EDIT (\S+)\n(.*?)\nEND$", re.S | re.M)


@journal.tool(effect="idempotent")
def apply_patch(path: str, patch: str) -> str:
    """Apply a patch to a file."""
    return f"patched {path}"


def parse_loosely(text: str) -> list[dict[str, str]]:
    """The parser of the recordings: what stands in a Markdown fence counts too."""
    bare = re.sub(r"^```\w*\n(.*?)\n```$", r"\1", text, flags=re.S | re.M)
    return [{"path": path, "patch": patch} for path, patch in BLOCK.findall(bare)]


def parse_strictly(text: str) -> list[dict[str, str]]:
    """The tightened parser: a block begins its text; fences are refused."""
    if "```" in text:
        raise ToolError("edit blocks stand bare, without a Markdown fence")
    return [{"path": path, "patch": patch} for path, patch in BLOCK.findall(text)]


def run(t: Any, parse: Callable[[str], list[dict[str, str]]]) -> None:
    """The harness with one of the parsers."""
    t.context.system("Answer with edit blocks.")
    t.context.user(t.task)
    for turn in t.turns(max=20):
        reply = turn.model(tools=[])
        if reply.text == "done":
            t.finish(t.vars.get("edits", 0))
            continue
        try:
            edits = parse(reply.text)
        except ToolError as refused:
            t.context.user(f"Refused: {refused}")
            continue
        for edit in edits:
            turn.call("apply_patch", edit, step="apply")
        t.vars["edits"] = t.vars.get("edits", 0) + len(edits)


def agent(t: Any) -> None:
    """The agent as it was recorded."""
    run(t, parse_loosely)


def strict_agent(t: Any) -> None:
    """The agent after the change."""
    run(t, parse_strictly)


def model_of(number: int, fenced_turn: int | None = None) -> Any:
    """A model of 16 turns; in `fenced_turn` it wraps its patch in a Markdown fence."""

    def says(context: Any) -> ScriptedReply:
        if context.turn == 16:
            return ScriptedReply(text="done")
        block = f"EDIT src/{number}.py\n+line {context.turn}\nEND"
        return ScriptedReply(text=f"```diff\n{block}\n```" if context.turn == fenced_turn else block)

    return scripted(says, name="coder", version="1")


def record(count: int, odd: int = 3) -> None:
    """Record `count` trajectories; number `odd` holds a fenced patch at turn 14."""
    for number in range(count):
        model = model_of(number, 14 if number == odd else None)
        journal.run(agent, f"task-{number}", task=f"fix {number}", model=model)
