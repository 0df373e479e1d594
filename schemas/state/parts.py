"""A state in parts, for checkpoints that store each part once by its hash.

`head` is everything small; `intent`, `approvals` (with the budget and authorities) and `vars` are one part each;
`actions/<n>` and `mail/<n>` hold 1,000 entries and `context/<n>` one run of builds. Closed runs do not change
unless an old action is settled late, so a checkpoint writes what is new and names the rest by hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from ..context import Build
from ..errors import InvalidEvent
from ..events import Ref
from .budget import Budget
from .builder import RUN_ITEMS
from .records import Action, Approval, Authority, ContextState, ExecutionState, InForce, IntentState, State, Var

T = TypeVar("T")


class Rights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part `approvals`."""

    approvals: dict[str, Approval]
    authorities: dict[str, Authority]
    budget: Budget


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The part `head`: the state without what the other parts hold."""

    state: State
    latest: InForce | None
    by_purpose: dict[str, InForce]


_encode: Final = msgspec.json.Encoder().encode


def parts(state: State) -> dict[str, bytes]:
    """Return the parts of a state by name. `from_parts` gives the state back, byte for byte."""
    execution = state.execution
    bare: Any = {"actions": {}, "mail": {}, "vars": {}, "approvals": {}, "authorities": {}}
    head = Head(
        state=msgspec.structs.replace(
            state,
            intent=IntentState(),
            execution=msgspec.structs.replace(execution, context=ContextState(), budget=Budget(), **bare),
        ),
        latest=execution.context.latest,
        by_purpose=execution.context.by_purpose,
    )
    rights = Rights(approvals=execution.approvals, authorities=execution.authorities, budget=execution.budget)
    named = {
        "head": _encode(head),
        "intent": _encode(state.intent),
        "approvals": _encode(rights),
        "vars": _encode(execution.vars),
    }
    for name, runs in (
        ("actions", _runs(execution.actions)),
        ("mail", _runs(execution.mail)),
        ("context", execution.context.runs),
    ):
        for number, run in enumerate(runs):
            named[f"{name}/{number}"] = _encode(run)
    return named


def _runs(entries: Mapping[str, T]) -> Iterator[dict[str, T]]:
    items = iter(entries.items())
    while run := dict(islice(items, RUN_ITEMS)):
        yield run


def from_parts(named: Mapping[str, bytes]) -> State:
    """Return the state whose parts these are. Raises `InvalidEvent` when one is missing or cannot be read."""
    try:
        head = msgspec.json.decode(named["head"], type=Head)
        rights = msgspec.json.decode(named["approvals"], type=Rights)
        context = ContextState(
            runs=tuple(msgspec.json.decode(text, type=tuple[Build, ...]) for text in _numbered(named, "context")),
            latest=head.latest,
            by_purpose=head.by_purpose,
        )
        execution: ExecutionState = msgspec.structs.replace(
            head.state.execution,
            actions=_merged(named, "actions", dict[str, Action]),
            mail=_merged(named, "mail", dict[str, Ref]),
            vars=msgspec.json.decode(named["vars"], type=dict[str, Var]),
            approvals=rights.approvals,
            authorities=rights.authorities,
            budget=rights.budget,
            context=context,
        )
        intent = msgspec.json.decode(named["intent"], type=IntentState)
    except KeyError as missing:
        raise InvalidEvent(f"checkpoint: part {missing} is missing") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"checkpoint: a part cannot be read: {error}") from None
    return msgspec.structs.replace(head.state, intent=intent, execution=execution)


def _numbered(named: Mapping[str, bytes], name: str) -> list[bytes]:
    count = sum(1 for other in named if other.startswith(f"{name}/"))
    return [named[f"{name}/{number}"] for number in range(count)]


def _merged(named: Mapping[str, bytes], name: str, kind: type[dict[str, T]]) -> dict[str, T]:
    merged: dict[str, T] = {}
    for text in _numbered(named, name):
        merged.update(msgspec.json.decode(text, type=kind))
    return merged
