"""Every predicate of every control and fact is held by a fixture: changed by a named operator, findings change too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.sql.audit_equivalents import FACTS, NAMED, fact_reason, reason
from tests.sql.audit_mutants import mutants
from tests.sql.fact_mutants import FactBench
from tests.sql.mutant_runs import Bench
from trajlake.pipelines.audit.audit_controls import Control, controls, facts

QUICK = ("Q01", "Q05", "Q14", "X03")
"""Run always; all of them with `make test-all`."""
OVER_THE_LAKE = [name for name, control in controls().items() if {"events", "model_calls"} & set(control.inputs)]
SCOPES = re.compile(r"in_scope\([\w.]+, [\w.]+\)")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench(list(controls().values()))
    yield made
    made.close()


def check(bench: Bench, control: Control) -> None:
    assert bench.is_right(control)
    count, survivors = bench.survivors(control)
    assert count
    assert [name for name in survivors if reason(control.id, name) is None] == []
    alive = {name.partition(":")[0] for name in survivors}
    assert set(NAMED.get(control.id, {})) <= alive, "listed as equivalent, but noticed"


@pytest.mark.parametrize("name", QUICK)
def test_every_mutant_of_a_few_controls_is_noticed_or_listed(bench: Bench, name: str) -> None:
    check(bench, controls()[name])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in controls() if name not in QUICK])
def test_every_mutant_of_every_control_is_noticed_or_listed(bench: Bench, name: str) -> None:
    check(bench, controls()[name])


@pytest.mark.parametrize("name", OVER_THE_LAKE)
def test_a_statement_that_asks_for_no_tenant_and_day_at_all_is_noticed(bench: Bench, name: str) -> None:
    control = controls()[name]
    assert not bench.is_right(control._replace(sql=SCOPES.sub("true", control.sql)))


def test_every_listed_mutant_exists() -> None:
    for name, listed in NAMED.items():
        there = {mutant.name.partition(":")[0] for mutant in mutants(controls()[name].sql)}
        assert set(listed) <= there, name


@pytest.fixture(scope="module")
def fact_bench() -> Iterator[FactBench]:
    made = FactBench()
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", facts())
def test_every_mutant_of_every_fact_is_noticed_or_listed(fact_bench: FactBench, name: str) -> None:
    count, survivors = fact_bench.survivors(facts()[name])
    assert count
    assert survivors == [mutant.name for mutant in mutants(facts()[name].sql) if fact_reason(name, mutant.name)]


def test_every_listed_mutant_of_a_fact_exists() -> None:
    there = [f"{name} {mutant.name}" for name, fact in facts().items() for mutant in mutants(fact.sql)]
    for pattern in FACTS:
        assert any(re.match(pattern, one) for one in there), pattern
