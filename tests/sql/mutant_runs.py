"""Runs mutants of one control on both fixtures and tells which of them nobody notices."""

from __future__ import annotations

from collections import Counter

import duckdb

from tests.sql.audit_layout import SCOPE_ALL, SCOPE_NARROW, found_by, laid_out, narrow, open_session
from tests.sql.audit_mutants import mutants
from trajlake.pipelines.audit.audit_controls import Control
from trajlake.pipelines.audit.audit_fixture import MEMORY_LIMIT, load_rows, read_fixture
from trajlake.pipelines.audit.audit_session import Session


class Bench:
    """Both fixtures open, facts built, for any number of mutants."""

    def __init__(self, selected: list[Control]) -> None:
        self.laid = open_session(SCOPE_ALL, selected)
        fixture = read_fixture()
        self.built_in = Session(fixture.parameters.scope(), memory_limit=MEMORY_LIMIT)
        load_rows(self.built_in, fixture.tables)
        self.built_in.build_facts(selected)
        self.known = Counter(
            (row["control"], row["tenant"] if row["control"] != "X05" else "acme", row["trajectory_id"] or "the lake",
             -1 if row["sequence_number"] is None else row["sequence_number"])
            for row in fixture.expected
        )  # fmt: skip

    def close(self) -> None:
        self.laid.__exit__()
        self.built_in.__exit__()

    def is_right(self, control: Control) -> bool:
        """Whether a control (or a mutant of it) finds what it must in every scope."""
        everywhere, in_scope, built_in = (
            Counter({place: n for place, n in places.items() if place[0] == control.id})
            for places in (laid_out().everywhere, laid_out().in_scope, self.known)
        )
        try:
            narrow(self.laid, SCOPE_ALL)
            if found_by(self.laid, [control]) != everywhere:
                return False
            narrow(self.laid, SCOPE_NARROW)
            if found_by(self.laid, [control]) != in_scope:
                return False
            return found_by(self.built_in, [control]) == built_in
        except duckdb.Error:
            return False

    def survivors(self, control: Control) -> tuple[int, list[str]]:
        """Return how many mutants there are, and the names of those that find what they must."""
        names, count = [], 0
        for mutant in mutants(control.sql):
            count += 1
            if self.is_right(control._replace(sql=mutant.sql)):
                names.append(mutant.name)
        return count, names
