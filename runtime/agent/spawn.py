"""`turn.spawn`: a child trajectory `<id>/<turn>.<name>` under its own lease; its outcome is one recorded input.

Running a child again is safe at any moment: its id is fixed, so it resumes where it stands, or its recorded outcome
is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.events import InputRead

from .errors import Misuse, Parked
from .mailroom import boundary
from .outcome import Outcome
from .requests import Done, Steps
from .session import Session

RunChild = Callable[[str], Any]
"""Runs the child of this id to its `Outcome`; a coroutine function under asyncio."""


def run_spawn(s: Session, name: str, run_child: RunChild) -> Steps:
    """Return the `Outcome` of the child; parks when the child is parked."""
    if not name or "/" in name:
        raise Misuse(f"turn.spawn: name {name!r} must be a text without '/'")
    operation = f"spawn {name}"
    s.check_usable(operation)
    nth, event = s.table.take("read", f"spawn:{name}")
    if nth:
        raise Misuse(f"turn.spawn: {name!r} was spawned in this turn before; give each child its own name")
    if event is None:
        yield from boundary(s, operation)
        child_id = f"{s.trajectory_id}/{s.turn}.{name}"
        yield from s.checked_barrier()
        done: Done = yield from s.run_body(lambda: run_child(child_id), of=run_child)
        if done.error is not None:
            raise done.error
        outcome: Outcome = done.value
        if outcome.status == "parked":
            raise s.unwind(Parked([replace(one, kind="child") for one in outcome.waiting_for]))
        value = values.to_tree({"id": child_id, "status": outcome.status, "result": outcome.result})
        event = yield from s.record(InputRead(kind="spawn", name=name, value=value))
        yield from s.checked_barrier()
    else:
        s.serve([event])
    found = s.value(event.body.value)
    return Outcome(found["status"], found["result"])
