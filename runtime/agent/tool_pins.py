"""Pinned tools: after a change of code the model goes on seeing the tools it was shown.

Source: design/agent.md, *Resume*.

What it was shown stands in the log. It can be pinned where the code still takes every call that such a tool invites:
no argument was taken away or changed, and none that is new is required. What runs is the code as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import TaskStarted

from ..tools import Tool

if TYPE_CHECKING:
    from .session import Session

_COMPARED_IN_PARTS = frozenset({"properties", "required", "additionalProperties", "title", "description"})
"""Keywords of a schema that may differ; every other one (`anyOf`, `$defs`, ...) has to be as it was."""


def pinned_tools(s: Session, events: Iterable[Event]) -> Mapping[str, Any] | None:
    """Return name -> tool as these events (newest first) last offered it; None where one can no longer be kept."""
    shown: dict[str, Any] = {}
    for event in events:
        if event.type == "ContextBuilt" and (digest := event.body.head.tools) in event.body.stored:
            for tree in s.value(event.body.stored[digest]):
                shown.setdefault(tree["name"], tree)
    for name, tree in shown.items():
        tool = s.setup.tools.get(name)
        if tool is None or not still_takes(tool.parameters, tree["schema"]):
            return None
    return shown or None


def as_recorded(s: Session, offered: list[Tool]) -> list[Tool]:
    """Return the offered tools as the log has them; without those that did not exist when the task was started."""
    started: TaskStarted = s.events[0].body
    shown = s.pins["tools"]
    kept = []
    for tool in offered:
        tree = shown.get(tool.name)
        if tree is not None:
            kept.append(replace(tool, parameters=tree["schema"], description=tree["description"]))
        elif tool.name in started.tools:
            kept.append(tool)
    return kept


def still_takes(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    """Whether every call that fits the schema `then` fits `now`, as far as their arguments tell. Pure."""
    here, there = now.get("properties", {}), then.get("properties", {})
    if any(now.get(word) != then.get(word) for word in (now.keys() | then.keys()) - _COMPARED_IN_PARTS):
        return False
    if any(here.get(name, schema) != schema for name, schema in there.items()):
        return False
    others, others_then = now.get("additionalProperties", True), then.get("additionalProperties", True)
    if others is not True and (others_then not in (False, others) or not there.keys() <= here.keys()):
        return False
    return set(now.get("required", ())) <= set(then.get("required", ()))
