"""The stage of an action: the table is walked whole, and the documented one is the one in force."""

from __future__ import annotations

import itertools

import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, Log
from trajlake.schemas import events as e
from trajlake.schemas.state import TABLE, Facts, State, decide, fold, in_doubt, initial, stage, stages
from trajlake.schemas.state.stages import FACTS

EVERYTHING = [Facts(**dict(zip(FACTS, bits, strict=True))) for bits in itertools.product([False, True], repeat=8)]


def by_the_text(f: Facts) -> str:
    """The sentences of the design, once more, in other words than the table's."""
    if f.outcome:
        return "settled" if f.live or f.intent else "recorded"
    if not f.live:
        return "unanswered"
    if not f.intent:
        return "in_doubt" if f.authorized and f.loss else "unsent"
    if f.asynchronous:
        return "waiting" if f.deadline else "in_doubt"
    return "in_flight" if f.deadline and f.waited else "in_doubt"


@pytest.mark.parametrize("facts", EVERYTHING, ids=lambda facts: "".join("nY"[getattr(facts, n)] for n in FACTS))
def test_every_combination_of_facts_has_the_stage_that_the_design_says(facts: Facts):
    assert decide(facts) == by_the_text(facts)


def test_every_row_decides_something_and_imports_are_never_in_doubt():
    deciding = {next(index for index, rule in enumerate(TABLE) if rule.fits(facts)) for facts in EVERYTHING}
    assert deciding == set(range(len(TABLE)))
    assert {decide(facts) for facts in EVERYTHING if not facts.live} == {"recorded", "unanswered", "settled"}


def test_the_documented_table_is_the_one_in_force():
    rows = [line.strip().strip("|").split("|") for line in (stages.__doc__ or "").splitlines() if "    |" in line][2:]
    cells = [[cell.strip() for cell in row] for row in rows]
    for row, rule in zip(cells, TABLE, strict=True):
        wanted = {"yes": True, "no": False, "-": None}
        assert [wanted[cell] for cell in row[:-1]] == [getattr(rule, name) for name in FACTS]
        assert row[-1] == rule.stage


def started(**fields: object) -> Log:
    log = Log()
    log.add(e.TaskStarted(**fields))
    log.reply("pay", turn=0)
    return log


def folded(log: Log) -> State:
    return fold(initial(TENANT, TRAJECTORY), log.events)


def now(log: Log, seconds: float = 0) -> int:
    return log.events[-1].recorded_at + round(seconds * 1_000_000)


def stage_of(log: Log, live_token: int | None = 1, after_s: float = 0, **known: bool) -> str:
    state = folded(log)
    return stage(state.execution.actions["1.0"], state, now(log, after_s), live_token, **known)


def test_a_call_goes_from_unsent_to_settled():
    log = started()
    assert stage_of(log) == "unsent"
    log.intent("1.0", timeout_s=60.0)
    assert stage_of(log) == "in_flight"
    assert stage_of(log, live_token=None) == "in_doubt"
    assert stage_of(log, live_token=2) == "in_doubt", "a successor's lease waits for nobody's old call"
    assert stage_of(log, after_s=61) == "in_doubt", "also in a living worker"
    assert stage_of(log, waited=False) == "in_doubt"
    assert stage_of(log, live_token=None, waited=True) == "in_flight"
    assert stage_of(log, after_s=61, deadline_passed=False) == "in_flight"
    log.add(e.ToolResult(action_id="1.0", status="ok"))
    assert stage_of(log, live_token=None) == "settled"
    assert in_doubt(folded(log), now(log), None) == []


def test_the_stage_is_that_of_the_latest_attempt():
    log = started()
    log.intent("1.0")
    log.add(e.ToolResult(action_id="1.0", status="not_executed"))
    log.intent("1.0", attempt=2)
    assert stage_of(log, live_token=None) == "in_doubt"
    assert [action.action_id for action in in_doubt(folded(log), now(log), None)] == ["1.0"]


def test_a_job_waits_without_a_worker_until_its_deadline():
    log = started()
    log.intent("1.0", asynchronous=True, timeout_s=1.0, deadline_at=now(log, 3_600))
    assert stage_of(log, live_token=None, after_s=120) == "waiting"
    assert stage_of(log, live_token=1, after_s=3_601) == "in_doubt"


def test_after_accepted_loss_an_authorized_call_without_intent_is_in_doubt():
    log = started()
    log.add(e.Authorized(action_id="1.0", tool="pay", decision="allow", arguments_hash=""))
    assert stage_of(log) == "unsent"
    log.add(e.Resumed(last_sequence=2, accept_loss=True))
    assert stage_of(log) == "in_doubt"
    log.add(e.Authorized(action_id="1.0", tool="pay", decision="allow", arguments_hash=""))
    assert stage_of(log) == "unsent", "authorized again after the loss was accepted"


def test_a_denied_call_is_unsent_whatever_was_lost_and_a_refusal_settles_it():
    log = started()
    log.add(e.Authorized(action_id="1.0", tool="pay", decision="deny", arguments_hash=""))
    log.add(e.Resumed(last_sequence=2, accept_loss=True))
    assert stage_of(log) == "unsent"
    log.add(e.ToolResult(action_id="1.0", status="refused"))
    assert stage_of(log) == "settled"


def test_imports_are_recorded_or_unanswered():
    log = started(origin="imported")
    assert stage_of(log) == "unanswered"
    log.add(e.ToolResult(action_id="1.0", status="ok"))
    assert stage_of(log) == "recorded"
