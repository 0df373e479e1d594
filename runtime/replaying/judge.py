"""Judging what a replay serves: would this harness allow, refuse or ask for the same, and send the same?

The policy, constraints, budget and `approve` are asked again, on the state as it was. Prechecks look at the world as
it is now: they are not run, and a refusal of theirs stands as recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import Authorized, ToolIntent, ToolResult

from ..agent.arguments import arguments_of_text
from ..agent.authorize import Wanted, decide, key_of, policy_version
from ..agent.model_call import ToolCall
from ..agent.tool_call import wanted_of
from ..tools import InvalidArguments
from .explain import Difference, plain, recorded_arguments

if TYPE_CHECKING:
    from .serve import ReplaySession

DECISIONS = {"go": "allow", "replay": "allow", "refuse": "deny", "ask": "ask"}
CLOSED = "the turn was closed"
"""How the runtime's own refusals begin when a person closes a turn."""


class Judge:
    """Compares authorizations, intents and refusals of one replay with what this harness would do."""

    def __init__(self, s: ReplaySession) -> None:
        self._s = s
        self._wanted: dict[str, Wanted] = {}
        self._keys: dict[str, str] = {}
        self._authorized: set[str] = set()
        self.notes: set[str] = set()

    def at(self, event: Event) -> None:
        """Judge one event before it takes effect. Raises `Difference`."""
        if event.type == "Authorized":
            self._at_authorized(event, event.body)
        elif event.type == "ToolIntent":
            self._at_intent(event, event.body)
        elif event.type == "ToolResult" and event.body.status == "refused":
            self._at_refusal(event, event.body)
        elif event.type in ("ToolResult", "ToolSettled"):
            self._forget(event.body.action_id)

    def _at_authorized(self, event: Event, body: Authorized) -> None:
        s = self._s
        wanted = self._want(event, body)
        key, _ = key_of(s, wanted)
        self._wanted[body.action_id], self._keys[body.action_id] = wanted, key
        self._authorized.add(body.action_id)
        operation = f"authorize {body.tool} ({body.action_id})"
        if wanted.hash != body.arguments_hash:
            expected, got = recorded_arguments(s, event), plain(s, wanted.tree)
            component = f"arguments: {body.tool}"
            raise Difference(s, event, got, "changed", operation=operation, component=component, expected=expected)
        verdict = decide(s, wanted, key)
        now = policy_version(s.setup.policy)
        if now != body.policy_version:
            self.notes.add(f"policy version {body.policy_version or 'none'} was recorded, {now or 'none'} was asked")
        if verdict.kind == "go" and body.decision == "deny" and wanted.tool.options.precheck is not None:
            self.notes.add(f"the precheck of {body.tool} refused a call; prechecks are not run in a replay")
            return
        expected = {"decision": body.decision, "reason": body.reason}
        got = {"decision": DECISIONS[verdict.kind], "reason": verdict.text}
        if expected != got:
            component = "budget" if "budget" in (body.reason[:6], verdict.text[:6]) else "policy"
            if "constraint " in (body.reason[:11], verdict.text[:11]):
                component = "constraint"
            raise Difference(s, event, got, "changed", operation=operation, component=component, expected=expected)
        left = s.view.budget.frozen().left if s.view.budget.limits else {}
        if body.budget_left != left and not s.left.covered:
            raise Difference(
                s, event, left, "changed", operation=operation, component="budget", expected=dict(body.budget_left)
            )

    def _want(self, event: Event, body: Authorized) -> Wanted:
        """The call as this harness would make it. Raises `Difference` where it would refuse to."""
        s = self._s
        action = s.view.actions.by_id.get(body.action_id)
        if action is None or action.reply is None or action.proposal is None:
            wanted: Any = s.wanted
            return wanted  # type: ignore[no-any-return]
        text = s.text_of(action.proposal, action.reply)
        index = int(body.action_id.rpartition(".")[2])
        call = ToolCall(action.tool, text, action.proposal.provider_id, body.action_id, index)
        try:
            return wanted_of(s, call, action)
        except (InvalidArguments, InvalidValue) as error:
            raise Difference(
                s, event, {"decision": "refused", "reason": str(error)}, "changed",
                operation=f"authorize {body.tool} ({body.action_id})", component=f"arguments: {body.tool}",
                expected={"decision": body.decision, "arguments": _parsed(text)},
            ) from None  # fmt: skip

    def _at_intent(self, event: Event, body: ToolIntent) -> None:
        s = self._s
        wanted = self._wanted.get(body.action_id)
        if wanted is None or body.attempt != 1 or body.settling:
            return
        expected = {"effect": body.effect, "key": body.key, "step": body.step}
        got = {"effect": wanted.tool.effect, "key": self._keys[body.action_id], "step": wanted.step}
        if expected != got:
            component = f"{next(name for name in expected if expected[name] != got[name])} of tool {body.tool}"
            raise Difference(
                s, event, got, "changed", operation=f"intent {body.tool} ({body.action_id})", component=component,
                expected=expected,
            )  # fmt: skip

    def _at_refusal(self, event: Event, body: ToolResult) -> None:
        """A call that was refused unread (no such tool, arguments that do not fit) must be refused again."""
        s = self._s
        known = body.action_id in self._authorized
        self._forget(body.action_id)
        action = s.view.actions.by_id.get(body.action_id)
        if known or action is None or action.reply is None or action.proposal is None or body.mail is not None:
            return
        if isinstance(body.error, str) and body.error.startswith(CLOSED):
            return
        text = s.text_of(action.proposal, action.reply)
        call = ToolCall(action.tool, text, action.proposal.provider_id, body.action_id, 0)
        got: Any = {"refused": False, "arguments": _parsed(text)}
        try:
            wanted_of(s, call, action)
        except (InvalidArguments, InvalidValue) as error:
            got = {"refused": True, "reason": str(error)}
        expected = {"refused": True, "reason": plain(s, body.error)}
        if expected != got:
            raise Difference(
                s, event, got, "changed", operation=f"call {body.tool} ({body.action_id})",
                component=f"arguments: {body.tool}", expected=expected,
            )  # fmt: skip

    def _forget(self, action_id: str) -> None:
        self._wanted.pop(action_id, None)
        self._keys.pop(action_id, None)
        self._authorized.discard(action_id)


def _parsed(text: str) -> Any:
    try:
        return arguments_of_text(text)
    except (InvalidArguments, msgspec.DecodeError):
        return text
