"""Actions as the applied events have them: proposal, authorization, intents, outcome; and the keys they used."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    ModelReplied,
    ProposedCall,
    ToolIntent,
    ToolResult,
    ToolSettled,
)
from trajlake.schemas.ids import parse_action_id

from .decide import Approval

Phase = Literal["proposed", "authorized", "open", "settled"]


class Action(msgspec.Struct, gc=False):
    """One action. `reply` is the reply that proposed it (None: the harness). `first_key` never changes again."""

    action_id: str
    tool: str
    reply: int | None = None
    proposal: ProposedCall | None = None
    format: str = ""
    step: str = ""
    hash: str = ""
    decision: str = ""
    authorized_seq: int = -1
    intent: ToolIntent | None = None
    intent_seq: int = -1
    intent_token: int = 0
    first_key: str = ""
    outcome: str = ""
    outcome_seq: int = -1
    approval: Approval | None = None

    @property
    def phase(self) -> Phase:
        """How far it came: `open` is an intent without result."""
        if self.outcome:
            return "settled"
        if self.intent is not None:
            return "open"
        return "authorized" if self.decision else "proposed"

    @property
    def attempt(self) -> int:
        return self.intent.attempt if self.intent is not None else 0

    @property
    def executed(self) -> bool:
        return self.outcome in ("ok", "error", "executed")


HashCall = Callable[[str, ProposedCall, int], str]
"""(tool, call, reply) -> arguments hash of a proposal, "" where it could never become an intent."""


class Actions:
    """All actions of a trajectory, by id, with the order that idempotency keys count in."""

    def __init__(self, hash_call: HashCall) -> None:
        self.by_id: dict[str, Action] = {}
        self.approvals: dict[str, str] = {}
        self.key_owner: dict[str, str] = {}
        self._hash_call = hash_call
        self._places: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)

    def occurrence(self, action_id: str, step: str, hashed: str) -> int:
        """Return n: how many earlier proposals have this step and hash, in the numeric order of action ids."""
        return bisect_left(self._places.get((step, hashed), []), order_of(action_id))

    def undecided(self) -> list[Action]:
        """Actions that were authorized and have no outcome, in the order of their latest events."""
        found = [action for action in self.by_id.values() if not action.outcome and action.authorized_seq >= 0]
        return sorted(found, key=lambda action: max(action.intent_seq, action.authorized_seq))

    def start(self, by_id: dict[str, Action], places: dict[tuple[str, str], list[tuple[int, int, int]]]) -> None:
        """Begin with these actions, in place of none; `places` by step and hash, each sorted."""
        self.by_id, self._places = by_id, places

    def inherit(self, action: Action) -> None:
        """Take in an ancestor's action: it counts in keys, and begins nothing any more."""
        self.by_id[action.action_id] = action
        if action.hash:
            insort(self._places[action.step, action.hash], order_of(action.action_id))

    def gave_up(self, event: Event) -> None:
        """Take in an event that a roll-back gave up: an approval that its intent spent stays spent."""
        body = event.body
        if isinstance(body, ToolIntent) and body.approval:
            owner = self.by_id.get(self.approvals.get(body.approval, ""))
            if owner is not None and owner.approval is not None and owner.approval.approval_id == body.approval:
                owner.approval = replace(owner.approval, used=True)

    def apply(self, event: Event, *, known_only: bool = False) -> None:
        """Take in one event of `ACTION_TYPES`. `known_only`: a roll-back left it behind: it begins no action."""
        body = event.body
        if known_only and getattr(body, "action_id", None) not in self.by_id:
            return
        _TAKE_IN[event.type](self, event, body)

    def _proposed(self, event: Event, body: ModelReplied) -> None:
        sequence_number = event.sequence_number
        if body.status != "kept":
            return
        for index, call in enumerate(body.calls):
            action = Action(f"{sequence_number}.{index}", call.tool, sequence_number, call, body.format, call.tool)
            self.by_id[action.action_id] = action
            self._place(action, call.tool, self._hash_call(call.tool, call, sequence_number))

    def _authorized(self, event: Event, body: Authorized) -> None:
        action = self._action(body.action_id, body.tool)
        action.decision, action.authorized_seq = body.decision, event.sequence_number
        self._place(action, action.step or body.tool, body.arguments_hash)

    def _intended(self, event: Event, body: ToolIntent) -> None:
        action = self._action(body.action_id, body.tool)
        self._place(action, body.step or body.tool, body.arguments_hash)
        action.intent, action.intent_seq, action.intent_token = body, event.sequence_number, event.fencing_token
        action.outcome, action.outcome_seq = "", -1
        action.first_key = action.first_key or body.key
        self.key_owner.setdefault(body.key, body.action_id)
        if action.approval is not None and body.approval == action.approval.approval_id:
            action.approval = replace(action.approval, used=True)

    def _ended(self, event: Event, body: ToolResult) -> None:
        action = self._action(body.action_id)
        action.outcome, action.outcome_seq = body.status, event.sequence_number

    def _settled(self, event: Event, body: ToolSettled) -> None:
        action = self._action(body.action_id)
        action.outcome, action.outcome_seq = body.verdict, event.sequence_number

    def _asked(self, event: Event, body: ApprovalRequested) -> None:
        action = self._action(body.action_id, body.tool)
        action.approval = Approval(
            body.approval_id, body.action_id, body.arguments_hash, event.sequence_number, expires_at=body.expires_at
        )
        self.approvals[body.approval_id] = body.action_id

    def _answered(self, event: Event, body: ApprovalResolved) -> None:
        del event
        approval = self._action(body.action_id).approval
        if approval is not None and approval.approval_id == body.approval_id and not approval.decision:
            self.by_id[body.action_id].approval = replace(
                approval,
                decision=body.decision,
                posted_at=body.mail.posted_at if body.mail is not None else None,
                because=body.because,
            )

    def _action(self, action_id: str, tool: str = "") -> Action:
        action = self.by_id.get(action_id)
        if action is None:
            action = self.by_id[action_id] = Action(action_id, tool, step=tool)
        return action

    def _place(self, action: Action, step: str, hashed: str) -> None:
        if (action.step, action.hash) == (step, hashed) and hashed:
            return
        order = order_of(action.action_id)
        if action.hash:
            self._places[action.step, action.hash].remove(order)
        action.step, action.hash = step, hashed
        if hashed:
            insort(self._places[step, hashed], order)


_TAKE_IN: Final[Mapping[str, Callable[[Actions, Event, Any], None]]] = {
    "ModelReplied": Actions._proposed,
    "Authorized": Actions._authorized,
    "ToolIntent": Actions._intended,
    "ToolResult": Actions._ended,
    "ToolSettled": Actions._settled,
    "ApprovalRequested": Actions._asked,
    "ApprovalResolved": Actions._answered,
}
ACTION_TYPES: Final = frozenset(_TAKE_IN)
"""Types of events that say something of an action."""


@lru_cache(maxsize=4096)
def order_of(action_id: str) -> tuple[int, int, int]:
    """The place of an action among all: ancestors' first, then by reply and place in it."""
    up, sequence_number, index = parse_action_id(action_id)
    return -up, sequence_number, index
