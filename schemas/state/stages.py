"""The stage of an action: one table, used by recovery through `stage()` and by SQL over the same facts.

Source: design/agent.md, *Tools and their outcomes*; design/events.md, *Imports*. The first rule that fits decides
(`-` = either). `intent` and `outcome` are those of the latest attempt; `live` = the origin is live and a tenure of
this trajectory's own proposed it (false for imports and for what a branch inherited); `deadline` = the call's or
the job's deadline has not passed; `waited` = the tenure that wrote the intent still holds a live lease (in the
worker itself: somebody still waits); `loss` = the log was accepted with loss after the authorization.

    | live | authorized | intent | outcome | asynchronous | deadline | waited | loss | stage      |
    |------|------------|--------|---------|--------------|----------|--------|------|------------|
    | no   | -          | no     | yes     | -            | -        | -      | -    | recorded   |
    | no   | -          | -      | no      | -            | -        | -      | -    | unanswered |
    | -    | -          | -      | yes     | -            | -        | -      | -    | settled    |
    | yes  | yes        | no     | no      | -            | -        | -      | yes  | in_doubt   |
    | yes  | -          | no     | no      | -            | -        | -      | -    | unsent     |
    | yes  | -          | yes    | no      | yes          | yes      | -      | -    | waiting    |
    | yes  | -          | yes    | no      | no           | yes      | yes    | -    | in_flight  |
    | yes  | -          | yes    | no      | -            | -        | -      | -    | in_doubt   |
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from .records import Action, State

Stage = Literal["unsent", "in_flight", "waiting", "settled", "in_doubt", "recorded", "unanswered"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a stage; see the module's table."""

    live: bool
    authorized: bool
    intent: bool
    outcome: bool
    asynchronous: bool
    deadline: bool
    waited: bool
    loss: bool


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row: null fits both."""

    stage: Stage
    live: bool | None = None
    authorized: bool | None = None
    intent: bool | None = None
    outcome: bool | None = None
    asynchronous: bool | None = None
    deadline: bool | None = None
    waited: bool | None = None
    loss: bool | None = None

    def fits(self, facts: Facts) -> bool:
        return all(
            wanted is None or wanted is getattr(facts, name) for name, wanted in zip(FACTS, self._wanted(), strict=True)
        )

    def _wanted(self) -> tuple[bool | None, ...]:
        return tuple(getattr(self, name) for name in FACTS)


FACTS: Final = Facts.__struct_fields__

TABLE: Final = (
    Rule(live=False, intent=False, outcome=True, stage="recorded"),
    Rule(live=False, outcome=False, stage="unanswered"),
    Rule(outcome=True, stage="settled"),
    Rule(live=True, authorized=True, intent=False, outcome=False, loss=True, stage="in_doubt"),
    Rule(live=True, intent=False, outcome=False, stage="unsent"),
    Rule(live=True, intent=True, outcome=False, asynchronous=True, deadline=True, stage="waiting"),
    Rule(live=True, intent=True, outcome=False, asynchronous=False, deadline=True, waited=True, stage="in_flight"),
    Rule(live=True, intent=True, outcome=False, stage="in_doubt"),
)


def decide(facts: Facts) -> Stage:
    """Return the stage that the table gives."""
    return next(rule.stage for rule in TABLE if rule.fits(facts))


def facts(
    action: Action,
    state: State,
    now_us: int,
    live_token: int | None,
    *,
    waited: bool | None = None,
    deadline_passed: bool | None = None,
) -> Facts:
    """Return the facts of one action.

    `now_us` is µs UTC; `live_token` is the token of the lease that is live now, or None. A worker that knows
    better says so: `waited` (its own call still runs), `deadline_passed` (by its boot-time clock).
    """
    started, lost = state.execution.started, state.execution.loss_accepted
    passed = _passed(action, now_us) if deadline_passed is None else deadline_passed
    tenure_lives = live_token is not None and live_token == action.intent_token
    return Facts(
        live=(started is None or started.origin == "live") and not action.inherited,
        authorized=action.authorized is not None and action.decision == "allow",
        intent=action.intent is not None,
        outcome=action.outcome is not None,
        asynchronous=action.asynchronous,
        deadline=not passed,
        waited=tenure_lives if waited is None else waited,
        loss=isinstance(lost, int) and isinstance(action.authorized, int) and action.authorized < lost,
    )


def _passed(action: Action, now_us: int) -> bool:
    """Whether the deadline passed by wall clock; a call without one has none that passes while its tenure lives."""
    if action.deadline_at is not None:
        return now_us > action.deadline_at
    if action.timeout_s is not None and not action.asynchronous:
        return now_us > action.intent_at + round(action.timeout_s * 1_000_000)
    return False


def stage(
    action: Action,
    state: State,
    now_us: int,
    live_token: int | None,
    *,
    waited: bool | None = None,
    deadline_passed: bool | None = None,
) -> Stage:
    """Return the stage of an action of `state`; arguments as for `facts`."""
    return decide(facts(action, state, now_us, live_token, waited=waited, deadline_passed=deadline_passed))


def in_doubt(state: State, now_us: int, live_token: int | None) -> list[Action]:
    """Return the actions in doubt, in log order: all are settled before any new dispatch."""
    return [
        action
        for action in state.execution.actions.values()
        if action.outcome is None and stage(action, state, now_us, live_token) == "in_doubt"
    ]
