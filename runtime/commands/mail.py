"""Verbs that post mail to a trajectory: settle, approve, deny, cancel, deliver, steer.

An item that its trajectory would not take is refused here already, as far as the root shows; the worker decides again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.root import (
    ACTOR,
    JOURNAL,
    JSON,
    TENANT,
    open_root,
    postman,
    print_json,
    settings_of,
    value_of,
)

if TYPE_CHECKING:
    from trajlake.runtime.mailbox.mail import MailItem
    from trajlake.runtime.mailbox.posting import Postman
    from trajlake.runtime.root_view import TrajectoryView

ID = Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")]
BECAUSE = Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; it is recorded.")]


def approve(
    trajectory_id: ID,
    question: Annotated[str, typer.Argument(metavar="APPROVAL", help="The approval's id, or its action's.")],
    because: BECAUSE = "",
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Grant what a trajectory asks for: exactly that action with exactly those arguments, once."""
    _post(journal, tenant, actor, trajectory_id, as_json, lambda post: post.approve(trajectory_id, question, because))


def deny(
    trajectory_id: ID,
    question: Annotated[str, typer.Argument(metavar="APPROVAL", help="The approval's id, or its action's.")],
    because: BECAUSE = "",
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Refuse what a trajectory asks for; the model is told so."""
    _post(journal, tenant, actor, trajectory_id, as_json, lambda post: post.deny(trajectory_id, question, because))


def cancel(
    trajectory_id: ID,
    because: BECAUSE = "",
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Ask a trajectory to stop; effects under way stay in doubt until they are settled."""
    _post(journal, tenant, actor, trajectory_id, as_json, lambda post: post.cancel(trajectory_id, because))


def settle(
    trajectory_id: ID,
    action_id: Annotated[str, typer.Argument(metavar="ACTION", help="The action in doubt; 'status' lists it.")],
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="How you know; it is recorded.")],
    executed: Annotated[
        bool | None, typer.Option("--executed/--not-executed", help="Whether the effect happened.")
    ] = None,
    evidence: Annotated[str, typer.Option("--evidence", metavar="TEXT", help="What shows it: audits ask for it.")] = "",
    output: Annotated[str | None, typer.Option("--output", metavar="TEXT", help="What it returned, as JSON.")] = None,
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Say whether an effect in doubt happened. Look before you answer: it decides whether it is sent again."""
    if executed is None:
        raise UserError("say --executed or --not-executed")
    value = msgspec.UNSET if output is None else value_of(output)
    _post(
        journal, tenant, actor, trajectory_id, as_json,
        lambda post: post.settle(
            trajectory_id, action_id, executed=executed, because=because, evidence=evidence, output=value
        ),
    )  # fmt: skip


def deliver(
    trajectory_id: ID,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action's id, or the provider's call id.")],
    output: Annotated[str | None, typer.Option("--output", metavar="TEXT", help="The result, as JSON.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="It ran and failed; its text.")] = None,
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Deliver the result of an asynchronous job."""
    if (output is None) is (error is None):
        raise UserError("give either --output or --error")
    value = None if output is None else value_of(output)
    _post(
        journal, tenant, actor, trajectory_id, as_json,
        lambda post: post.deliver(trajectory_id, action, value, error=error),
    )  # fmt: skip


def steer(
    trajectory_id: ID,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say to the model.")],
    journal: JOURNAL = None,
    tenant: TENANT = None,
    actor: ACTOR = None,
    as_json: JSON = False,
) -> None:
    """Say something to a trajectory's model; it is read where the next turn begins."""
    _post(journal, tenant, actor, trajectory_id, as_json, lambda post: post.steer(trajectory_id, text))


def _post(
    journal: str | None,
    tenant: str | None,
    actor: str | None,
    trajectory_id: str,
    as_json: bool,
    write: Callable[[Postman], MailItem],
) -> None:
    from trajlake.runtime.mailbox.mail import MailError
    from trajlake.runtime.root_view import RootView

    settings = settings_of(journal, tenant)
    view = RootView(open_root(settings.journal))
    found = view.trajectory(settings.tenant, trajectory_id)
    if found is None:
        raise UserError(
            f"no trajectory {trajectory_id!r} of tenant {settings.tenant!r} in {view.root.path}; see 'trajlake status'"
        )
    try:
        sender = postman(view.root, settings.tenant, actor, lambda item: _refuse_what_it_would_not_take(item, found))
        item = write(sender)
    except MailError as error:
        raise UserError(str(error)) from None
    _say(item, found, as_json)


def _refuse_what_it_would_not_take(item: MailItem, found: TrajectoryView) -> None:
    from trajlake.runtime.mailbox.mail_events import Drop, event_of
    from trajlake.schemas.events import LateResult

    outcome = None if found.state is None else event_of(item, found.state)
    if isinstance(outcome, Drop | LateResult):
        raise UserError(f"refused: {outcome.reason}; 'trajlake status' shows what is open")


def _say(item: MailItem, found: TrajectoryView, as_json: bool) -> None:
    if as_json:
        tree: dict[str, Any] = msgspec.to_builtins(item)
        print_json(tree)
        return
    holder = found.record.holder if found.record else None
    who = f"{holder.worker} reads it at its next step" if holder else "nobody works on it now: 'trajlake resume' does"
    print(f"posted {item.kind} {item.id} to {item.trajectory_id}; {who}")
