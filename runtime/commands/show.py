"""Verb `show`: one trajectory, turn by turn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, damaged, open_root, print_json, settings_of

if TYPE_CHECKING:
    from trajlake.schemas.envelope import Event

HIDDEN = frozenset({"ContextBuilt", "Authorized", "VarSet"})
"""Left out for people unless --all: they repeat what stands beside them."""


def show(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    turn: Annotated[int | None, typer.Option("--turn", help="Only this turn; -1 is the prologue.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every event, with its payload.")] = False,
    journal: JOURNAL = None,
    lake: Annotated[str | None, typer.Option("--lake", metavar="URL", help="With --turn: read from a lake.")] = None,
    tenant: TENANT = None,
    as_json: JSON = False,
) -> int:
    """Show one trajectory: what was said, called, settled and decided, by turn. Exit 1 where its log lacks events.

    With --turn, go back to it: the context as each model call was shown it, where outputs were cut and what was cut
    away, the budget, and every authorization.
    """
    if turn is not None and not everything:
        return show_turn(trajectory_id, turn, journal, lake, tenant, as_json=as_json)
    if lake is not None:
        raise UserError("--lake shows one turn: give --turn N, or ask the lake itself with 'trajlake sql'")
    from trajlake.runtime.root_view import RootView, status_row

    settings = settings_of(journal, tenant)
    view = RootView(open_root(settings.journal))
    found = view.trajectory(settings.tenant, trajectory_id)
    if found is None:
        raise UserError(f"no trajectory {trajectory_id!r} of tenant {settings.tenant!r} in {view.root.path}")
    if found.state is None and found.lacks:
        raise damaged(f"{trajectory_id}: unreadable: {found.lacks}", view.root, exit_code=EXIT_COULD_NOT_RUN)
    code = EXIT_FINDINGS if found.lacks else EXIT_DONE
    events = [event for event in (found.history.events if found.history else []) if turn in (None, event.turn)]
    row = status_row(found, view.root.env.now_us())
    if as_json:
        from trajlake.runtime.commands.journal import event_json

        print_json(
            {"status": msgspec.to_builtins(row), "events": [msgspec.Raw(event_json(e).encode()) for e in events]}
        )
        return code
    print(one_line(f"{trajectory_id}: {row.status}, {row.events} events, turn {row.turn}, token {row.token}"))
    if row.next and not found.lacks:
        print(f"  {one_line(row.next)}")
    if found.lacks:
        print(f"  {one_line(str(damaged(found.lacks, view.root)))}")
    hidden = 0 if everything else sum(event.type in HIDDEN for event in events)
    at = None
    for event in events:
        if event.type in HIDDEN and not everything:
            continue
        if event.turn != at:
            at = event.turn
            print("prologue" if at < 0 else f"turn {at}")
        print(f"  #{event.sequence_number} {event.type} {payload(event) if everything else brief(event)}".rstrip())
    if hidden:
        print(f"events left out that repeat what stands beside them: {hidden}; --all shows them")
    return code


def show_turn(
    trajectory_id: str, turn: int, journal: str | None, lake: str | None, tenant: str | None, *, as_json: bool
) -> int:
    """Print one past turn; exit 1 where the record lacks events."""
    from trajlake.runtime.branches.time_travel import text_of, turn_view
    from trajlake.runtime.replaying.lineage import LineageBroken
    from trajlake.runtime.replaying.sources import open_source

    settings = settings_of(journal, tenant)
    root = None if lake is not None else open_root(settings.journal).path
    record = open_source(journal=root, lake=lake, tenant=settings.tenant).record(trajectory_id)
    if record is None:
        raise UserError(f"no trajectory {trajectory_id!r} of tenant {settings.tenant!r} in {lake or root}")
    try:
        view = turn_view(record, turn)
    except LineageBroken as why:
        raise UserError(f"{trajectory_id} is a branch: {why}") from None
    if view is None:
        raise UserError(f"{trajectory_id}: turn {turn} was never reached; the last is {record.outline.last_turn}")
    if as_json:
        from trajlake.runtime.commands.journal import event_json

        events = [event for number, found in record.turns() if number == turn for event in found]
        raw = [msgspec.Raw(event_json(event).encode()) for event in events]
        print_json(msgspec.to_builtins(view) | {"events": raw})
    else:
        print(text_of(view))
        if record.outline.gap:
            print(f"{trajectory_id}: {record.outline.gap}", file=sys.stderr)
    return EXIT_FINDINGS if record.outline.gap else EXIT_DONE


def payload(event: Event) -> str:
    """Return the payload's text on one line."""
    return "" if event.payload is None else one_line(event.payload.decode(errors="replace"))


def brief(event: Event, width: int = 120) -> str:
    """Return what a person wants to see of an event."""
    body: Any = event.body
    match event.type:
        case "MessageAdded":
            text = f"{body.role}: {_content(body.wire)}"
        case "ModelReplied":
            calls = ", ".join(f"{call.tool}[{event.sequence_number}.{at}]" for at, call in enumerate(body.calls))
            text = f"{body.status} {said(body)} {calls}"
        case "ToolIntent":
            text = f"{body.action_id} {body.tool} attempt {body.attempt} {body.effect} key {body.key[:12]}"
        case "ToolResult":
            text = f"{body.action_id} {body.status} {_plain(body.output) if body.error is None else _plain(body.error)}"
        case "ToolSettled":
            text = f"{body.action_id} {body.verdict} by {body.how} {body.because}"
        case _:
            text = payload(event)
    text = one_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}\N{HORIZONTAL ELLIPSIS}"


def said(body: Any) -> str:
    """Return the text of a reply: its own field, else what its body holds by its format."""
    if body.text is not None or not isinstance(body.raw, str):
        return _plain(body.text)
    from trajlake.runtime.models import ModelError, read_response

    try:
        return read_response(body.format, body.raw.encode()).text
    except (ModelError, ValueError):
        return ""


def _content(wire: Any) -> str:
    return _plain(wire.get("content")) if isinstance(wire, dict) else _plain(wire)


def _plain(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    return "" if tree is None else msgspec.json.encode(tree).decode()
