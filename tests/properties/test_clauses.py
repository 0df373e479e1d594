"""Take one clause of the protocol out: the simulated runs must notice. A clause nobody misses is not tested."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

import trajlake.runtime.agent.actions as actions
import trajlake.runtime.agent.dispatch as dispatch
import trajlake.runtime.agent.life as life
import trajlake.runtime.agent.mailroom as mailroom
import trajlake.runtime.agent.resume as resume
import trajlake.runtime.agent.session as session
import trajlake.runtime.agent.settle as settle
from tests.properties.test_simulated_runs import simulate
from tests.support import simulated_host
from trajlake.runtime.agent.decide import settle_step
from trajlake.runtime.agent.ports import Found
from trajlake.runtime.mailbox.mail_events import Drop, event_of

RUNS = 6_000
"""The clause that takes longest to miss (dispatch before doubts are settled) is missed after about 1,600."""


def nothing(value: Any = None) -> Any:
    """An operation that asks for nothing."""

    def steps(*_: Any, **__: Any) -> Iterator[Any]:
        yield from ()
        return value

    return steps


def no_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "barrier", nothing())


def send_before_the_intent_is_durable(patch: pytest.MonkeyPatch) -> None:
    def run_batch(s: Any, batch: Any, limit: int) -> Any:
        ticket, s.ticket = s.ticket, None
        doubts = yield from original(s, batch, limit)
        s.ticket = s.ticket or ticket
        return doubts

    original = dispatch.run_batch
    import trajlake.runtime.agent.tool_call as tool_call

    patch.setattr(tool_call, "run_batch", run_batch)


def copy_nothing_at_a_take_over(patch: pytest.MonkeyPatch) -> None:
    read = simulated_host.SimulatedLog.read
    patch.setattr(simulated_host.SimulatedLog, "read", lambda self, *a: Found(read(self, *a).events, []))


def count_no_occurrences_in_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(actions.Actions, "occurrence", lambda self, *a: 0)


def dispatch_before_doubts_are_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resume, "settle_all", nothing(([], [])))


def take_a_timeout_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch, "outcome_of", lambda effect, *, raised, **more: "not_executed" if raised else "ok")


def believe_a_probe_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        settle, "settle_step", lambda doubt, now: settle_step(dataclasses.replace(doubt, timeout_s=-1e9), now)
    )


def delete_mail_before_its_event_is_durable(patch: pytest.MonkeyPatch) -> None:
    def drain(s: Any, *, steer: bool = False) -> Any:
        items = s.ports.mail.waiting(s.tenant, s.trajectory_id)
        for item in items:
            s.ports.mail.delete(item)
            payload = mailroom._event_of(s, item)
            if payload is not None:
                yield from s.record(payload)

    for module in (mailroom, life, resume, settle):
        patch.setattr(module, "drain", drain)


def take_mail_in_that_is_in_the_log_already(patch: pytest.MonkeyPatch) -> None:
    def again(item: Any, state: Any, **more: Any) -> Any:
        payload = event_of(item, state, **more)
        if isinstance(payload, Drop) and "in the log already" in payload.reason:
            return mailroom.msgspec.structs.replace(_cancelled(item))
        return payload

    from trajlake.schemas.events import LateResult

    def _cancelled(item: Any) -> Any:
        return LateResult(action_id="0.0", decision="refused", mail=item.stamp)

    patch.setattr(mailroom, "event_of", again)


def show_the_agent_the_whole_log(patch: pytest.MonkeyPatch) -> None:
    reset = life._reset

    def ahead(s: Any) -> None:
        reset(s)
        for event in s.events:
            if event.type == "VarSet":
                s.view.vars[event.body.name] = event.body.value

    patch.setattr(life, "_reset", ahead)


def go_on_at_the_next_turn(patch: pytest.MonkeyPatch) -> None:
    note = life._reset

    def skip(s: Any) -> None:
        note(s)
        s.closed_turn = s.open_turn >= 0

    patch.setattr(life, "_reset", skip)


def show_results_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "checked_barrier", nothing())


CLAUSES = [
    no_barrier,
    send_before_the_intent_is_durable,
    copy_nothing_at_a_take_over,
    count_no_occurrences_in_keys,
    dispatch_before_doubts_are_settled,
    take_a_timeout_for_a_failure,
    believe_a_probe_at_once,
    delete_mail_before_its_event_is_durable,
    take_mail_in_that_is_in_the_log_already,
    show_the_agent_the_whole_log,
    go_on_at_the_next_turn,
    show_results_before_they_are_durable,
]


@pytest.mark.long
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_clause_taken_out_is_missed(clause: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clause(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 - whatever check fails first names it
        simulate(0, RUNS)
