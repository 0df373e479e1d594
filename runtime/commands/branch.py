"""Verb `branch`: go on from a recorded turn with one thing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.replay import AGENT, LAKE, OBJECT, source_of, suite_of
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, print_json
from trajlake.runtime.named_module import imported

if TYPE_CHECKING:
    from trajlake.runtime.replaying.many import Suite
    from trajlake.runtime.replaying.record import Record


def branch(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The recorded trajectory.")],
    at_turn: Annotated[
        int | None, typer.Option("--at-turn", min=0, metavar="N", help="Live from the beginning of this turn.")
    ] = None,
    change: Annotated[str, typer.Option("--change", metavar="TEXT", help="What is changed; it is recorded.")] = "",
    agent: AGENT = "",
    item: Annotated[
        list[str] | None,
        typer.Option(
            "--item",
            metavar="EVENT=TEXT",
            help="Another text for a context item (^2:12: of the parent's parent).",
        ),
    ] = None,
    stubs: Annotated[
        str | None, typer.Option("--stubs", metavar="MODULE:OBJECT", help="Stand-ins; default: recorded answers.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option("--workspace", metavar="PATH", help="Put the files of the fork there, by branch.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--times", min=1, help="How many branches.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="ID is a branch that was cut short: go on with it.")] = False,
    journal: JOURNAL = None,
    lake: LAKE = None,
    tenant: TENANT = None,
    journal_object: OBJECT = None,
    model_object: Annotated[str | None, typer.Option("--model-object", metavar="NAME", help="Which model.")] = None,
    as_json: JSON = False,
) -> int:
    """Branch a trajectory: everything before the turn is its record, everything after is live, against stand-ins.

    Branches are written to the journal of the agent's module, as `ID~N.0`, `ID~N.1`, ... With --resume: exit code 1
    when the branch failed, was cancelled, or waits for somebody.
    """
    if resume and (at_turn is not None or change or item or n != 1):
        raise UserError("--resume goes on with a branch as it was begun: leave out --at-turn, --change, --item and -n")
    if not resume and (at_turn is None or not change.strip()):
        raise UserError("give --at-turn N and --change TEXT, or --resume with the id of a branch")
    suite = suite_of(agent, journal, lake, tenant, journal_object)
    record, given = _parts(suite, trajectory_id, model_object, stubs, workspace)
    with given["journal"]:
        if resume:
            return _go_on(record, given, as_json)
        return _begin(record, at_turn or 0, change, _items(item or []), n, given, as_json)


def _parts(
    suite: Suite, trajectory_id: str, model_object: str | None, stubs: str | None, workspace: str | None
) -> tuple[Record, dict[str, Any]]:
    """The record, and what `branch` and `resume_branch` are both given."""
    from trajlake.runtime.branches.branch_stubs import Stubs
    from trajlake.runtime.commands.run import runner_of

    record = source_of(suite).record(trajectory_id)
    if record is None:
        raise UserError(f"no trajectory {trajectory_id!r} is recorded; check the id, --journal or --lake, and --tenant")
    if record.outline.problem:
        raise UserError(f"{trajectory_id}: {record.outline.problem}")
    chosen = imported(stubs, "--stubs")[1] if stubs is not None else Stubs()
    if not isinstance(chosen, Stubs):
        raise UserError(f"--stubs {stubs}: that is no Stubs object")
    name = suite.agent or record.outline.notable[0].body.agent
    runner = runner_of(name, None, suite.journal_object, model_object)
    return record, {
        "tools": chosen, "workspace": workspace, "agent": runner.agent, "journal": runner.journal,
        "model": runner.model,
    }  # fmt: skip


def _go_on(record: Record, given: dict[str, Any], as_json: bool) -> int:
    from trajlake.runtime.branches.branching import resume_branch
    from trajlake.runtime.commands.run import show

    outcome = resume_branch(record, record.trajectory_id, **given)
    show(record.trajectory_id, outcome, as_json)
    return 0 if outcome.status == "completed" else 1


def _begin(
    record: Record, at_turn: int, what: str, items: dict[Any, Any], n: int, given: dict[str, Any], as_json: bool
) -> int:
    from trajlake.runtime.branches.branching import Change
    from trajlake.runtime.branches.branching import branch as run

    report = run(record, record.trajectory_id, at_turn, Change(what=what, messages=items), n=n, **given)
    if as_json:
        print_json(report.as_json())
    else:
        print(report.text())
        print("branches: " + ", ".join(report.ids))
    return 0


def _items(given: list[str]) -> dict[Any, Any]:
    from trajlake.runtime.branches.branch_run import parsed_place

    found: dict[Any, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise UserError(f"--item {one!r}: expected EVENT=TEXT, such as 12='the whole list'")
        found[parsed_place(name)] = text
    return found
