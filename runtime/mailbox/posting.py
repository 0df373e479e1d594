"""Posting mail: what `journal.approve, deny, cancel, settle, deliver, steer` and the verbs of those names do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trajlake.schemas.values import to_tree, to_tree_lossy

from ..env import REAL_ENV, Env
from .mail import MailItem, MailKind, MailRefused, MailStore


class Postman:
    """Posts items for one tenant in the name of `actor`. Every method returns the item, durable by then.

    `known_by` says how the actor is known (`os user`, `single sign-on`, ...). What becomes of an item is decided by
    the trajectory's worker, when it reads it (`mail_events.event_of`). Raises `MailRefused` and `InvalidId` for wrong
    input, before anything is written; `check` may refuse an item then, by raising. `mail_id` makes a second posting
    of the same item harmless.
    """

    def __init__(
        self,
        store: MailStore,
        tenant: str,
        *,
        actor: str,
        known_by: str = "",
        env: Env = REAL_ENV,
        check: Callable[[MailItem], None] | None = None,
    ) -> None:
        self._store, self._tenant, self._actor, self._known_by, self._env = store, tenant, actor, known_by, env
        self._check = check

    def approve(self, trajectory_id: str, subject: str, because: str = "", **more: Any) -> MailItem:
        """Grant the question with this approval id, or the one about this action."""
        return self._answer(trajectory_id, subject, "granted", because, more)

    def deny(self, trajectory_id: str, subject: str, because: str = "", **more: Any) -> MailItem:
        """Refuse it."""
        return self._answer(trajectory_id, subject, "denied", because, more)

    def cancel(self, trajectory_id: str, because: str = "", *, mail_id: str = "") -> MailItem:
        """Ask a trajectory to stop."""
        return self._post(trajectory_id, "cancel", "", {"because": because}, mail_id)

    def settle(
        self,
        trajectory_id: str,
        action_id: str,
        *,
        executed: bool,
        because: str,
        evidence: Any = None,
        output: Any = msgspec.UNSET,
        mail_id: str = "",
    ) -> MailItem:
        """Say whether a doubtful effect happened, why one knows, and what shows it (`evidence`: a statement, a query).

        `output` only for one that did. Without evidence audits report the settlement (control X03).
        """
        if not because.strip():
            raise MailRefused(f"settling action {action_id} needs a reason: say how you know")
        body: dict[str, Any] = {"verdict": "executed" if executed else "not_executed", "because": because}
        if evidence not in (None, ""):
            body["evidence"] = to_tree(evidence)
        if output is not msgspec.UNSET:
            if not executed:
                raise MailRefused(f"action {action_id} cannot be not executed and have an output")
            body["output"] = to_tree(output)
        return self._post(trajectory_id, "settle", _named(action_id, "action"), body, mail_id)

    def deliver(
        self, trajectory_id: str, action: str, result: Any = None, *, error: str | None = None, mail_id: str = ""
    ) -> MailItem:
        """Deliver the result of an asynchronous job, by action id or the provider's call id."""
        tree, _ = to_tree_lossy(result)
        body: dict[str, Any] = {"status": "ok", "output": tree}
        if error is not None:
            body = {"status": "error", "error": to_tree(error)}
        return self._post(trajectory_id, "result", _named(action, "action"), body, mail_id)

    def steer(self, trajectory_id: str, text: str, *, mail_id: str = "") -> MailItem:
        """Say something to the model; it is read where the next turn begins."""
        if not text.strip():
            raise MailRefused("an empty message steers nothing")
        return self._post(trajectory_id, "steer", "", {"text": to_tree(text)}, mail_id)

    def _answer(self, trajectory_id: str, subject: str, decision: str, because: str, more: dict[str, Any]) -> MailItem:
        mail_id = more.pop("mail_id", "")
        body = {"decision": decision, "because": because, **more}
        return self._post(trajectory_id, "approval", _named(subject, "approval or action"), body, mail_id)

    def _post(self, trajectory_id: str, kind: MailKind, subject: str, body: dict[str, Any], mail_id: str) -> MailItem:
        item = MailItem(
            id=mail_id or self._env.random_bytes(16).hex(),
            tenant=self._tenant,
            trajectory_id=trajectory_id,
            kind=kind,
            subject=subject,
            body=body,
            actor=self._actor,
            actor_known_by=self._known_by,
            posted_at=self._env.now_us(),
        )
        if self._check is not None:
            self._check(item)
        self._store.post(item)
        return item


def _named(subject: str, what: str) -> str:
    if not subject.strip():
        raise MailRefused(f"name the {what}")
    return subject
