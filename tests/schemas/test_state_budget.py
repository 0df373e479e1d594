"""Budget: exact decimal text, reservations, spend."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext

import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, Log
from trajlake.schemas import events as e
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.state import Budget, fold, initial
from trajlake.schemas.state.budget import add, compare, normal, subtract, total


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("0", "0"), ("007", "7"), ("0.250", "0.25"), ("3.", None), ("1e-3", "0.001"), ("12E2", "1200"), ("0.0", "0")],
)
def test_an_amount_has_one_text(given: str, wanted: str | None):
    if wanted is None:
        with pytest.raises(InvalidValue, match="expected a decimal"):
            normal(given)
    else:
        assert normal(given) == wanted


@pytest.mark.parametrize("bad", ["", "-1", "+1", "NaN", "inf", "1,5", " 1", "1e999", "٣", "9" * 31, "1_0"])
def test_what_is_no_decimal_is_refused(bad: str):
    with pytest.raises(InvalidValue):
        normal(bad)
    with pytest.raises(InvalidValue):
        add("1", bad)


def test_sums_and_differences_are_exact():
    chance = random.Random(7)
    with localcontext() as context:
        context.prec = 80
        for _ in range(2_000):
            one, other = (f"{chance.randint(0, 10**12)}.{chance.randint(0, 10**9):09}" for _ in range(2))
            assert Decimal(add(one, other)) == Decimal(one) + Decimal(other)
            assert Decimal(subtract(one, other)) == max(Decimal(0), Decimal(one) - Decimal(other))
            assert compare(one, other) == (Decimal(one) > Decimal(other)) - (Decimal(one) < Decimal(other))
    assert add("0.1", "0.2") == "0.3"
    assert total([{"usd": "0.1"}, {"usd": "0.9", "t": "1"}]) == {"usd": "1", "t": "1"}


def paying(**reserved: str) -> Log:
    log = Log()
    log.add(e.TaskStarted(budget={"usd": "1", "tool_calls": "2"}))
    log.intent("1.0", reserved=reserved)
    return log


def budget(log: Log) -> Budget:
    return fold(initial(TENANT, TRAJECTORY), log.events).execution.budget


def test_spend_is_reserved_at_the_intent_and_booked_at_the_result():
    log = paying(usd="0.4")
    held = budget(log)
    assert (held.reserved, held.left) == ({"usd": "0.4"}, {"usd": "0.6", "tool_calls": "1"})
    assert held.allows({"usd": "0.6"}) is None
    assert held.allows({"usd": "0.61"}) == "usd"
    log.add(e.ToolResult(action_id="1.0", status="ok", cost={"usd": "0.15"}))
    assert (budget(log).reserved, budget(log).spent["usd"], budget(log).left["usd"]) == ({}, "0.15", "0.85")


def test_in_doubt_stays_reserved_until_a_verdict():
    for verdict, spent in (("executed", "0.4"), ("not_executed", None)):
        log = paying(usd="0.4")
        log.opening()
        assert budget(log).reserved == {"usd": "0.4"}
        log.add(e.ToolSettled(action_id="1.0", how="probe", verdict=verdict))
        assert budget(log).reserved == {}
        assert budget(log).spent.get("usd") == spent


def test_attempts_of_one_action_are_one_effect_and_one_call():
    log = paying(usd="0.4")
    log.intent("1.0", attempt=2, reserved={"usd": "0.3"})
    assert budget(log).reserved == {"usd": "0.4"}
    assert budget(log).spent["tool_calls"] == "1"


def test_every_attempt_of_a_model_call_is_counted():
    log = Log()
    log.add(e.TaskStarted())
    for status in ("error", "rejected", "kept"):
        log.reply(status=status, turn=0, usage=e.Usage(input_total=100, output=5), cost={"usd": "0.01"})
    assert budget(log).spent == {
        "turns": "1",
        "model_calls": "3",
        "input_tokens": "300",
        "output_tokens": "15",
        "usd": "0.03",
    }


def test_what_is_left_never_falls_below_nothing():
    log = paying(usd="5")
    assert budget(log).left["usd"] == "0"
    log.add(e.BudgetRevised(limits={"usd": "7"}))
    assert budget(log).left["usd"] == "2"
    assert budget(log).limits == {"usd": "7", "tool_calls": "2"}
