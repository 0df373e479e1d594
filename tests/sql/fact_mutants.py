"""Runs mutants of the facts, which controls stand on, on both fixtures, and tells which of them nobody notices."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import duckdb

from tests.sql.audit_layout import SCOPE_ALL, SCOPE_NARROW, Place, found_by, laid_out, narrow
from tests.sql.audit_mutants import mutants
from tests.sql.mutant_runs import Bench
from trajlake.pipelines.audit.audit_controls import Control, Fact, controls, facts, facts_for
from trajlake.pipelines.audit.audit_run import Finding, findings, run_controls
from trajlake.pipelines.audit.audit_session import PART_COLUMNS, Scope, Session

Said = dict[str, Counter[Finding]]
"""Control -> its findings."""


class Stage(NamedTuple):
    """One fixture in one scope, and what every control must find there."""

    name: str
    session: Session
    scope: Scope | None
    known: Counter[Place]

    def enter(self) -> None:
        if self.scope:
            narrow(self.session, self.scope)


class FactBench:
    """Both fixtures open; one fact at a time is made anew from a changed statement, with those that read it."""

    def __init__(self) -> None:
        self._controls = list(controls().values())
        self._bench = Bench(self._controls)
        self._stages = (
            Stage("kept_everywhere", self._bench.laid, SCOPE_ALL, laid_out().everywhere),
            Stage("kept_in_scope", self._bench.laid, SCOPE_NARROW, laid_out().in_scope),
            Stage("kept_built_in", self._bench.built_in, None, self._bench.known),
        )

    def close(self) -> None:
        self._bench.close()

    def survivors(self, fact: Fact) -> tuple[int, list[str]]:
        """Return how many mutants there are, and the names of those with which every control says what it must."""
        reading = [one for one in self._controls if fact.name in {needed.name for needed in facts_for([one])}]
        said = {stage.name: self._said(stage, fact, reading) for stage in self._stages}
        names, count = [], 0
        for mutant in mutants(fact.sql):
            count += 1
            changed = fact._replace(sql=mutant.sql)
            if all(_is_unnoticed(stage, changed, reading, said[stage.name]) for stage in self._stages):
                names.append(mutant.name)
        narrow(self._bench.laid, SCOPE_ALL)
        for session in (self._bench.laid, self._bench.built_in):
            _rebuild(session, fact)
        return count, names

    def _said(self, stage: Stage, fact: Fact, reading: list[Control]) -> Said:
        """Keep the fact's rows, see that every control finds what it must, and return its findings word for word."""
        stage.enter()
        _rebuild(stage.session, fact)
        stage.session.connection.execute(f"create or replace temp table {stage.name} as from {fact.name}")
        ids = {one.id for one in reading}
        known = Counter({place: n for place, n in stage.known.items() if place[0] in ids})
        assert found_by(stage.session, reading) == known, f"{fact.name}, {stage.name}"
        every = findings(stage.session)
        return {one.id: Counter(row for row in every if row.control == one.id) for one in reading}


def _is_unnoticed(stage: Stage, changed: Fact, reading: list[Control], said: Said) -> bool:
    """Whether every control says what it must; where the fact has the same rows as ever, none need be asked."""
    try:
        stage.enter()
        _make(stage.session, changed)
        if _is_same(stage.session, changed.name, stage.name):
            return True
        _rebuild(stage.session, changed)
        return all(_says(stage.session, control, said[control.id]) for control in reading)
    except duckdb.Error:
        return False


def _says(session: Session, control: Control, said: Counter[Finding]) -> bool:
    session.connection.execute("drop table if exists found")
    run_controls(session, [control], scanned=True)
    return session.count("found") == said.total() and Counter(findings(session)) == said


def _is_same(session: Session, one: str, other: str) -> bool:
    (row,) = session.connection.execute(
        f"select count(*) from ((from {one} except all from {other}) union all (from {other} except all from {one}))"
    ).fetchall()
    return row == (0,)


def _make(session: Session, fact: Fact) -> None:
    columns = ", ".join(PART_COLUMNS)
    session.connection.execute(f"create or replace temp table events_part as select {columns} from events")
    session.connection.execute(f"create or replace temp table {fact.name} as {fact.sql}")


def _rebuild(session: Session, changed: Fact) -> None:
    """Make the fact from its changed statement, and after it every fact that reads it."""
    stale = {changed.name}
    for fact in facts().values():
        if fact.name == changed.name or stale & set(fact.inputs):
            stale.add(fact.name)
            _make(session, changed if fact.name == changed.name else fact)
