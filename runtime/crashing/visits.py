"""Tools under watch: each run of a body is a visit in the ledger, and a boundary before and after it."""

from __future__ import annotations

import hashlib
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any, Final

from trajlake.schemas import values

from ..tools import Call, NotExecuted, Tool, ToolError
from .boundaries import Boundaries
from .ledger import Ledger, Line, Seen
from .places import Place
from .witness import Body, Witness

ALONE_MAX_S: Final = 1.0
"""How long a kill waits for other bodies to end, so that the ledger says of each whether it happened."""
LOOKED_AT_MAX: Final = 20_000
"""Files up to which the folder of a trial is looked through before and after a `read` or `local` body."""


class WatchedCall(Call):
    """A `Call` that notes whether its key was read."""

    __slots__ = ("body",)
    body: Body

    @property
    def key(self) -> str:
        self.body.seen.key_read = True
        found: str = _KEY.__get__(self)
        return found

    @key.setter
    def key(self, value: str) -> None:
        _KEY.__set__(self, value)


_KEY: Final[Any] = Call.__dict__["key"]


def _watched_call(call: Call, body: Body) -> WatchedCall:
    watched: WatchedCall = object.__new__(WatchedCall)
    for one in fields(Call):
        object.__setattr__(watched, one.name, getattr(call, one.name))
    object.__setattr__(watched, "body", body)
    return watched


class Visits:
    """The tools of one life."""

    def __init__(self, life: int, ledger: Ledger, boundaries: Boundaries, place: Place) -> None:
        self.life, self.ledger, self.boundaries, self.place = life, ledger, boundaries, place
        self.witness: Witness | None = None
        self._count, self._inside = 0, 0
        self._changed = threading.Condition()

    def harness_acted(self, what: str, where: str) -> None:
        """The agent's own code did something outside."""
        self.ledger.write(Line(kind="harness", life=self.life, what=what, place=where))

    def wait_until_alone(self) -> None:
        """Give bodies that run in other threads time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._inside == 0, ALONE_MAX_S)

    def watch(self, tool: Tool) -> None:
        """Put the watch around a tool's function, also for those who call it outside a turn; and around its probe."""
        object.__setattr__(tool, "function", self._around(tool))
        object.__setattr__(tool, "takes_call", True)
        probe = tool.options.probe
        if probe is not None and not inspect.iscoroutinefunction(probe):
            object.__setattr__(tool.options, "probe", self._probing(tool.name, probe))

    def _probing(self, name: str, probe: Callable[..., Any]) -> Callable[..., Any]:
        def probing(call: Call) -> Any:
            self.boundaries.hit(f"before: probe {name}")
            answer = probe(call)
            self.boundaries.hit(f"after: probe {name}")
            return answer

        return probing

    def _around(self, tool: Tool) -> Callable[..., Any]:
        function, takes_call = tool.function, tool.takes_call

        def given(visit: OneVisit, call: Call | None) -> dict[str, Any]:
            return {"call": _watched_call(call, visit.body)} if takes_call and call is not None else {}

        async def async_body(*args: Any, call: Call | None = None, **kwargs: Any) -> Any:
            with OneVisit(self, tool, call, kwargs, args) as visit:
                visit.value = await function(*args, **kwargs, **given(visit, call))
            return visit.value

        def body(*args: Any, call: Call | None = None, **kwargs: Any) -> Any:
            with OneVisit(self, tool, call, kwargs, args) as visit:
                visit.value = function(*args, **kwargs, **given(visit, call))
            return visit.value

        return async_body if inspect.iscoroutinefunction(function) else body

    def next_number(self) -> int:
        """Count one more body, which is inside from now on."""
        with self._changed:
            self._count += 1
            self._inside += 1
            return self._count

    def left(self) -> None:
        """A body is outside again, its exit in the ledger."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def look(self) -> dict[str, tuple[int, int]] | None:
        """Every file of the trial's folder, by size and time; None where there are too many to look at."""
        found: dict[str, tuple[int, int]] = {}
        for folder, names, files in os.walk(self.place.files):
            if "__pycache__" in names:
                names.remove("__pycache__")
            for name in files:
                path = os.path.join(folder, name)
                try:
                    facts = os.lstat(path)
                except FileNotFoundError:
                    continue
                found[path] = facts.st_size, facts.st_mtime_ns
            if len(found) > LOOKED_AT_MAX:
                return None
        return found


class OneVisit:
    """One run of a body, from its entry in the ledger to its exit."""

    def __init__(
        self, visits: Visits, tool: Tool, call: Call | None, named: Mapping[str, Any], plain: tuple[Any, ...]
    ) -> None:
        self._visits, self._tool, self._call = visits, tool, call
        self.body = Body(call.key if call is not None else "")
        self.value: Any = None
        digest = hashlib.sha256(repr((plain, sorted(named.items()))).encode()).hexdigest()
        self._arguments = call.arguments_hash if call is not None and call.arguments_hash else digest
        self._during: AbstractContextManager[None] | None = None
        self._number = 0
        self._before: dict[str, tuple[int, int]] | None = None

    def __enter__(self) -> OneVisit:
        visits, tool, call = self._visits, self._tool, self._call
        visits.boundaries.hit(f"before: tool {tool.name}")
        self._number = visits.next_number()
        line = Line(
            kind="enter", life=visits.life, visit=self._number, tool=tool.name, effect=tool.effect,
            keyed=tool.honours_key, arguments_hash=self._arguments,
        )  # fmt: skip
        if call is not None:
            line.trajectory_id, line.action, line.attempt, line.key = (
                call.trajectory_id, call.action_id, call.attempt, call.key
            )  # fmt: skip
            named = f"{call.trajectory_id}:{call.action_id}", call.attempt
            line.intent_durable = tool.effect == "read" or named in visits.boundaries.durable
        visits.ledger.write(line)
        assert visits.witness is not None
        self._during = visits.witness.during(self.body)
        self._during.__enter__()
        if tool.effect in ("read", "local"):
            self._before = visits.look()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        visits = self._visits
        assert self._during is not None
        seen = self._seen()
        self._during.__exit__(None, None, None)
        line = Line(
            kind="leave", life=visits.life, visit=self._number, tool=self._tool.name, ended=_ended(error), seen=seen,
            output=None if error is not None else values.to_tree_lossy(self.value)[0],
        )  # fmt: skip
        visits.ledger.write(line)
        visits.left()
        visits.boundaries.hit(f"after: tool {self._tool.name}")

    def _seen(self) -> Seen:
        seen = self.body.finish()
        after = self._visits.look() if self._before is not None and self.body.alone else None
        if self._before is not None and after is not None:
            named = " ".join([*seen.files, *seen.outside])
            for path in sorted({*self._before.items()} ^ {*after.items()}):
                shown = os.path.relpath(path[0])
                if shown not in named:
                    inside = self._visits.place.area(path[0]) == "workspace"
                    (seen.files if inside else seen.outside).append(f"changed {shown}")
                    named += shown
        return seen


def _ended(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, NotExecuted):
        return "not_executed"
    return "tool_error" if isinstance(error, ToolError) else "unknown"
