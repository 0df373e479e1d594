"""Tools of a branch: stubs, recorded answers, or test systems in place of the real ones. The real ones never run.

A branch is live after the fork, and its effects would be real. So every tool needs a stand-in; schemas and names stay,
so that the model is offered what it was offered.
"""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from trajlake.schemas import blobs, values
from trajlake.schemas.envelope import Event
from trajlake.schemas.keys import arguments_hash

from ..agent.errors import Misuse
from ..tools import Tool, ToolError

Blob = Callable[[str], bytes]


class Stubs:
    """Stand-ins by tool name: a function of the same arguments, a `Tool` of a test system, or the value itself.

    `rest`: what the others do. "recorded": answer as the parent did for the same arguments, each answer once and the
    last one again, and fail by name for arguments it never saw. "refuse": `branch` does not start while a tool has no
    stand-in. `real`: names of tools that may really run, such as a pure calculation.
    """

    def __init__(
        self, by_name: Mapping[str, Any] | None = None, *, rest: Literal["recorded", "refuse"] = "recorded",
        real: Iterable[str] = (), **more: Any,
    ) -> None:  # fmt: skip
        self.by_name = {**(by_name or {}), **more}
        self.rest, self.real = rest, frozenset(real)

    def kinds(self, tools: Iterable[str]) -> dict[str, str]:
        """Return what stands in for each tool: "real", "stub" or "recorded". `Branched` records it."""
        return {name: "real" if name in self.real else "stub" if name in self.by_name else "recorded" for name in tools}

    def over(
        self, tools: Mapping[str, Tool], prefix: Iterable[Event], blob: Blob, *, files: bool = False,
        spent: Iterable[Event] = (),
    ) -> dict[str, Tool]:  # fmt: skip
        """Return the branch's tools; with `files`, stand-ins of `local` tools work on the branch's own files.

        `spent`: events of the branch itself; the recorded answers that they used up are not given again.
        Raises `Misuse` for a tool without a stand-in, or a stub of no tool.
        """
        unknown = (set(self.by_name) | self.real) - set(tools)
        if unknown:
            raise Misuse(f"Stubs: no tool is named {', '.join(sorted(unknown))}; there are {', '.join(sorted(tools))}")
        open_ones = [name for name in tools if name not in self.by_name and name not in self.real]
        if open_ones and self.rest == "refuse":
            raise Misuse(
                f"branch: {', '.join(sorted(open_ones))} would really run after the fork; give each a stub, "
                "or name it in Stubs(real=...)"
            )
        answers = Answers(prefix, blob) if open_ones else None
        if answers is not None:
            answers.spend(spent)
        made = {}
        for name, tool in tools.items():
            if name in self.real:
                made[name] = tool
            elif name in self.by_name:
                made[name] = stand_in(tool, self.by_name[name], files=files and callable(self.by_name[name]))
            else:
                assert answers is not None
                made[name] = stand_in(tool, answers.of(name))
        return made


class Answers:
    """What the parent's tools answered, by tool and arguments."""

    def __init__(self, events: Iterable[Event], blob: Blob) -> None:
        self._found: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        for call, event in _answered(events):
            self._found[call].append(_answer(event, blob))
        self._blob = blob

    def spend(self, events: Iterable[Event]) -> None:
        """Take out the answers that a branch was given already; the last one of each call stays."""
        for call, _ in _answered(events):
            found = self._found.get(call)
            if found is not None and len(found) > 1:
                found.popleft()

    def of(self, tool: str) -> Answer:
        """Return the stand-in of one tool."""
        return Answer(self, tool)

    def answer(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Return the next recorded answer to this call. Raises `ToolError`, recorded or because there is none."""
        found = self._found.get((tool, arguments_hash(values.to_tree(arguments))))
        if not found:
            raise ToolError(f"{tool}: the parent recorded no answer for these arguments; give the branch a stub")
        recorded = found.popleft() if len(found) > 1 else found[0]
        if isinstance(recorded, ToolError):
            raise recorded
        return values.from_tree(blobs.inline(recorded, self._blob))


def _answered(events: Iterable[Event]) -> Iterator[tuple[tuple[str, str], Event]]:
    """Yield (tool, hash of its arguments) of every call that was answered, and the event that answers it."""
    asked: dict[str, tuple[str, str]] = {}
    for event in events:
        body = event.body
        if event.type == "ToolIntent":
            asked[body.action_id] = body.tool, body.arguments_hash
        elif _answers(event) and body.action_id in asked:
            yield asked[body.action_id], event


def _answers(event: Event) -> bool:
    """Whether a call was answered by this event: by its result, or as it was settled after a crash."""
    if event.type == "ToolSettled":
        return bool(event.body.verdict == "executed")
    return event.type == "ToolResult" and event.body.status in ("ok", "error")


def _answer(event: Event, blob: Blob) -> Any:
    body = event.body
    if event.type == "ToolSettled":
        return body.output if body.has_output else body.delivered
    return body.output if body.status == "ok" else ToolError(str(blobs.inline(body.error, blob)))


class Answer:
    """The stand-in of one tool that answers as recorded."""

    def __init__(self, answers: Answers, tool: str) -> None:
        self._answers, self._tool = answers, tool

    def __call__(self, **arguments: Any) -> Any:
        return self._answers.answer(self._tool, arguments)


class Harmless(Tool):
    """A stand-in that only answers: asked again, it does nothing twice."""

    __slots__ = ()

    @property
    def honours_key(self) -> bool:
        return True


def stand_in(tool: Tool, stub: Any, *, files: bool = False) -> Tool:
    """Return the tool with another body: nothing of the real one (gateway, probe, precheck) is asked any more.

    A stub that is a `Tool` brings its own gateway, probe and times.
    """
    own: dict[str, Any] = {"probe": None, "gateway": None, "precheck": None}
    if isinstance(stub, Tool):
        given = stub.options
        own = {name: getattr(given, name) for name in (*own, "timeout_s", "settle_after_s", "settle_attempts", "retry")}
        stub = stub.function
    answers = not callable(stub) or isinstance(stub, Answer)
    function = stub if callable(stub) else lambda **_: stub
    options = replace(
        tool.options, asynchronous=False, deadline_s=None, name=tool.name,
        effect="read" if tool.effect == "local" and not files else tool.effect, **own,
    )  # fmt: skip
    takes_call = callable(stub) and not answers and "call" in inspect.signature(stub).parameters
    made = replace(tool, function=function, options=options, takes_call=takes_call)
    return Harmless(**{one.name: getattr(made, one.name) for one in fields(made) if one.init}) if answers else made
