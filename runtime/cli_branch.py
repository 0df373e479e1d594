"""Verb `branch`: go on from a recorded turn with one thing changed."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.cli_replay import AGENT, LAKE, OBJECT, source_of, suite_of
from trajlake.runtime.cli_root import JOURNAL, JSON, TENANT, print_json


def branch(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The recorded trajectory.")],
    at_turn: Annotated[int, typer.Option("--at-turn", metavar="N", help="Live from the beginning of this turn.")],
    change: Annotated[str, typer.Option("--change", metavar="TEXT", help="What is changed; it is recorded.")],
    agent: AGENT = "",
    item: Annotated[
        list[str] | None,
        typer.Option("--item", metavar="EVENT=TEXT", help="Another text for the context item that an event holds."),
    ] = None,
    stubs: Annotated[
        str | None, typer.Option("--stubs", metavar="MODULE:OBJECT", help="Stand-ins; default: recorded answers.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option("--workspace", metavar="PATH", help="Put the files of the fork there, by branch.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--times", help="How many branches.")] = 1,
    journal: JOURNAL = None,
    lake: LAKE = None,
    tenant: TENANT = None,
    journal_object: OBJECT = None,
    model_object: Annotated[str | None, typer.Option("--model-object", metavar="NAME", help="Which model.")] = None,
    as_json: JSON = False,
) -> int:
    """Branch a trajectory: everything before the turn is its record, everything after is live, against stand-ins.

    Branches are written to the journal of the agent's module, as `ID~N.0`, `ID~N.1`, ...
    """
    from trajlake.runtime.branching import Change, Stubs
    from trajlake.runtime.branching import branch as run
    from trajlake.runtime.cli_run import runner_of

    suite = suite_of(agent, journal, lake, tenant, journal_object)
    record = source_of(suite).record(trajectory_id)
    if record is None:
        raise UserError(f"no trajectory {trajectory_id!r} is recorded; check the id, --journal or --lake, and --tenant")
    name = agent or record.outline.notable[0].body.agent
    runner = runner_of(name, None, journal_object, model_object)
    chosen = _object(stubs) if stubs is not None else Stubs()
    if not isinstance(chosen, Stubs):
        raise UserError(f"--stubs {stubs}: that is no Stubs object")
    with runner.journal:
        report = run(
            record, trajectory_id, at_turn, Change(what=change, messages=_items(item or [])), tools=chosen,
            workspace=workspace,
            agent=runner.agent, n=n, journal=runner.journal, model=runner.model,
        )  # fmt: skip
    if as_json:
        print_json(report.as_json())
    else:
        print(report.text())
        print("branches: " + ", ".join(report.ids))
    return 0


def _items(given: list[str]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for one in given:
        number, equals, text = one.partition("=")
        if not number.isdigit() or not equals:
            raise UserError(f"--item {one!r}: expected EVENT=TEXT, such as 12='the whole list'")
        found[int(number)] = text
    return found


def _object(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--stubs {name}: {error}") from None
