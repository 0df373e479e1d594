"""Verb `handover`: the sheet a new operator needs, from the log or from the newest checkpoint alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, damaged, open_root, print_json, settings_of

if TYPE_CHECKING:
    from trajlake.runtime.root import Root
    from trajlake.schemas.state import State

LISTS = ("constraints", "assumptions", "obligations", "observations", "questions", "in_doubt", "waiting", "unsent")
"""Parts of the sheet that are shown one entry a line."""


def handover(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="Read the newest checkpoint alone, not the log.")
    ] = False,
    journal: JOURNAL = None,
    tenant: TENANT = None,
    as_json: JSON = False,
) -> int:
    """Print what a new operator needs: goal, rules, promises, plan, doubts, effects, budget and authority.

    Exit 1 where the log is damaged or lacks events: then it tells of less than was done.
    """
    from trajlake.runtime.handover import sheet

    settings = settings_of(journal, tenant)
    root = open_root(settings.journal)
    if from_checkpoint:
        state, lacks = state_of_checkpoint(root, settings.tenant, trajectory_id), ""
    else:
        state, lacks = state_of_log(root, settings.tenant, trajectory_id)
    found = sheet(state, root.env.now_us())
    if as_json:
        print_json(
            {"as_of_event": state.sequence_number, "from_checkpoint": from_checkpoint, "lacks": lacks, "sheet": found}
        )
        return EXIT_FINDINGS if lacks else EXIT_DONE
    source = "checkpoint" if from_checkpoint else "log"
    print(one_line(f"{trajectory_id}: {found['status']}, turn {found['turn']}, as of event {state.sequence_number}"))
    print(f"  read from the {source}; the seam shows {found['seams']} resumes, {len(found['roll_backs'])} roll-backs")
    if lacks:
        print(f"  {one_line(str(damaged(lacks, root)))}; what follows is what came before")
    _show(found)
    return EXIT_FINDINGS if lacks else EXIT_DONE


def state_of_log(root: Root, tenant: str, trajectory_id: str) -> tuple[State, str]:
    """Return the fold of the log, and what it lacks, "" if nothing is known to."""
    from trajlake.runtime.root_view import RootView

    found = RootView(root).trajectory(tenant, trajectory_id)
    if found is None or found.state is None:
        if found is not None and found.lacks:
            raise damaged(f"{trajectory_id}: {found.lacks}", root, exit_code=EXIT_COULD_NOT_RUN)
        raise UserError(f"no trajectory {trajectory_id!r} of tenant {tenant!r} can be read in {root.path}")
    return found.state, found.lacks


def state_of_checkpoint(root: Root, tenant: str, trajectory_id: str) -> State:
    """Return the state that the newest readable checkpoint holds; no segment is opened."""
    from trajlake.runtime.checkpoints.checkpoint import START, CheckpointError, CheckpointFiles, load

    trouble = ""
    for record in reversed(CheckpointFiles(root.env, root.path).of(tenant, trajectory_id)):
        if record.cause == START:
            continue
        try:
            return load(root.blobs, tenant, record.root).state
        except CheckpointError as error:
            trouble = trouble or f": {error}"
    raise UserError(f"no checkpoint of {trajectory_id!r} (tenant {tenant!r}) in {root.path}{trouble}; read the log")


def _show(found: dict[str, Any]) -> None:
    print(f"  agent {found['agent'] or '?'}, model {found['model']}, principal {found['principal'] or 'none'}")
    for name in ("goal", "plan", "budget_left", "budget_spent", "workspace"):
        if found[name]:
            print(f"  {name.replace('_', ' ')}: {_text(found[name])}")
    if found["first_goal"] != found["goal"]:
        print(f"  goal at the start: {_text(found['first_goal'])}")
    for name in (*LISTS, "effects", "authorities", "switches", "roll_backs"):
        if found[name]:
            print(f"{name.replace('_', ' ')}:")
            for one in found[name]:
                print(f"  {_text({key: value for key, value in one.items() if value not in (None, '', [], {})})}")
    if found["stale"]:
        print(f"fetch again: {', '.join(one_line(name) for name in found['stale'])}")


def _text(tree: Any) -> str:
    return one_line(tree if isinstance(tree, str) else msgspec.json.encode(tree).decode())
