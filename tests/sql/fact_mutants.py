"""Runs mutants of the facts, which controls stand on, on both fixtures, and tells which of them nobody notices."""

from __future__ import annotations

from collections import Counter

import duckdb

from tests.sql.audit_layout import SCOPE_ALL, SCOPE_NARROW, found_by, laid_out, narrow
from tests.sql.audit_mutants import mutants
from tests.sql.mutant_runs import Bench
from trajlake.pipelines.audit_controls import Control, Fact, controls, facts, facts_for
from trajlake.pipelines.audit_session import PART_COLUMNS, Session


class FactBench:
    """Both fixtures open; one fact at a time is made anew from a changed statement, with those that read it."""

    def __init__(self) -> None:
        self._controls = list(controls().values())
        self._bench = Bench(self._controls)

    def close(self) -> None:
        self._bench.close()

    def survivors(self, fact: Fact) -> tuple[int, list[str]]:
        """Return how many mutants there are, and the names of those with which every control finds what it must."""
        reading = [one for one in self._controls if fact.name in {needed.name for needed in facts_for([one])}]
        assert self._is_right(fact, reading), fact.name
        names, count = [], 0
        for mutant in mutants(fact.sql):
            count += 1
            if self._is_right(fact._replace(sql=mutant.sql), reading):
                names.append(mutant.name)
        narrow(self._bench.laid, SCOPE_ALL)
        for session in (self._bench.laid, self._bench.built_in):
            _rebuild(session, fact)
        return count, names

    def _is_right(self, fact: Fact, reading: list[Control]) -> bool:
        ids = {one.id for one in reading}
        everywhere, in_scope, built_in = (
            Counter({place: n for place, n in places.items() if place[0] in ids})
            for places in (laid_out().everywhere, laid_out().in_scope, self._bench.known)
        )
        laid = self._bench.laid
        try:
            narrow(laid, SCOPE_ALL)
            _rebuild(laid, fact)
            if found_by(laid, reading) != everywhere:
                return False
            narrow(laid, SCOPE_NARROW)
            _rebuild(laid, fact)
            if found_by(laid, reading) != in_scope:
                return False
            _rebuild(self._bench.built_in, fact)
            return found_by(self._bench.built_in, reading) == built_in
        except duckdb.Error:
            return False


def _rebuild(session: Session, changed: Fact) -> None:
    """Make the fact from its changed statement, and after it every fact that reads it."""
    stale = {changed.name}
    for fact in facts().values():
        if fact.name == changed.name or stale & set(fact.inputs):
            stale.add(fact.name)
            sql = changed.sql if fact.name == changed.name else fact.sql
            columns = ", ".join(PART_COLUMNS)
            session.connection.execute(f"create or replace temp table events_part as select {columns} from events")
            session.connection.execute(f"create or replace temp table {fact.name} as {sql}")
