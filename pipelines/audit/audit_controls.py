"""The controls as text: `sql/audits/*.sql`, each with a header that says what it proves and what it reads.

A control selects violations: tenant, trajectory_id, sequence_number, action_id, object, related (numbers of other
events), detail. It reads tables of the lake and *facts* (`sql/audits/facts/*.sql`), which are read out of the events
once per run, because many controls need the same fields of a payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.tables import TABLES

from ..sql_text import sql_files

HEADER_FIELDS: Final = ("proves", "clauses", "severity", "grain", "applies", "needs", "inputs")
SESSION_TABLES: Final = ("retention_policy", "compatible_versions", "anchor_files")
"""What a run is told besides the lake; each is a table of the session."""
PART: Final = "events_part"
"""A stretch of the events: the relation that facts of each stretch are read from."""


class Control(NamedTuple):
    """One control. `applies` is live | all; `needs` names what must be there for it to say anything ("" nothing)."""

    id: str
    name: str
    title: str
    proves: str
    clauses: str
    severity: str
    grain: str
    applies: str
    needs: str
    inputs: tuple[str, ...]
    sql: str

    @property
    def sha256(self) -> str:
        """Of the file as it stands: `sha256sum` of it gives the same."""
        return sha256(self.sql.encode()).hexdigest()


class Fact(NamedTuple):
    """One table of facts. `by_part`: filled stretch by stretch; else built once, from what is there."""

    name: str
    inputs: tuple[str, ...]
    by_part: bool
    sql: str


@cache
def controls() -> dict[str, Control]:
    """Return id -> control, in the order of their files."""
    return {control.id: control for control in (_control(name, text) for name, text in sql_files("audits").items())}


@cache
def facts() -> dict[str, Fact]:
    """Return name -> fact, each after those it reads."""
    found = {name: _fact(name, text) for name, text in sql_files("audits/facts").items()}
    ordered: dict[str, Fact] = {}

    def place(fact: Fact) -> None:
        for name in fact.inputs:
            if name in found and name not in ordered:
                place(found[name])
        ordered.setdefault(fact.name, fact)

    for fact in found.values():
        place(fact)
    return ordered


def chosen(names: Iterable[str]) -> list[Control]:
    """Return the controls of these ids (all of them for none), in order; `UserError` for an unknown id."""
    wanted = {name.lower() for name in names}
    known = {control.id.lower(): control for control in controls().values()}
    unknown = sorted(wanted - known.keys())
    if unknown:
        raise UserError(f"audit: no control {ascii(unknown[0])}; there are {', '.join(controls())}")
    return [control for key, control in known.items() if not wanted or key in wanted]


def facts_for(selected: Iterable[Control]) -> list[Fact]:
    """Return the facts that these controls read, directly or through others, in the order to build them."""
    wanted: set[str] = {"audited"}
    waiting = [name for control in selected for name in control.inputs]
    while waiting:
        name = waiting.pop()
        if name in facts() and name not in wanted:
            wanted.add(name)
            waiting += facts()[name].inputs
    return [fact for fact in facts().values() if fact.name in wanted]


def lake_tables(selected: Iterable[Control]) -> list[str]:
    """Return the tables of the lake that these controls read, directly or through facts."""
    names = {name for control in selected for name in control.inputs}
    for fact in facts_for(selected):
        names.update("events" if name == PART else name for name in fact.inputs)
    return [name for name in TABLES if name in names]


def _control(name: str, text: str) -> Control:
    first = re.match(r"-- (\w+): (.+)", text)
    fields = _header(text, HEADER_FIELDS)
    if first is None:
        raise ValueError(f"{name}.sql: its first line must be '-- ID: title'")
    needs = "" if fields["needs"] == "-" else fields["needs"]
    return Control(
        id=first[1],
        name=name,
        title=first[2],
        proves=fields["proves"],
        clauses=fields["clauses"],
        severity=fields["severity"],
        grain=fields["grain"],
        applies=fields["applies"],
        needs=needs,
        inputs=_names(fields["inputs"]),
        sql=text,
    )


def _fact(name: str, text: str) -> Fact:
    fields = _header(text, ("inputs", "built"))
    inputs = _names(fields["inputs"])
    return Fact(name, inputs, PART in inputs, text)


def _header(text: str, names: Iterable[str]) -> Mapping[str, str]:
    fields = dict(re.findall(r"^-- (\w+): (.+)$", text, re.MULTILINE))
    for name in names:
        if name not in fields:
            raise ValueError(f"{text.splitlines()[0]}: its header lacks '{name}'")
    return fields


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().split(" ")[0] for name in text.split(","))
