"""Named mutation operators over the predicates of a statement: each mutant is one small way to get a control wrong.

Only predicates change: joins, conditions, groups, orders that decide, never what a finding says. A mutant is named
`operator@line: text`, the line counted from the first one of the statement proper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

PREDICATE: Final = re.compile(
    r"^\s*(where|and|on|or|having|when|else|not|qualify|coalesce\(|union"
    r"|(asof )?(left |inner |full outer |anti |semi )?join"
    r"|count\(|bool_|case when|case\b|from .* where)"
)
SWAPS: Final[dict[str, list[tuple[str, str]]]] = {
    "bound": [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > ")],
    "reverse": [(" < ", " > "), (" > ", " < ")],
    "equal": [(" = ", " <> "), (" <> ", " = ")],
    "null": [(" is distinct from ", " <> "), (" is null", " is not null"), (" is not null", " is null")],
    "default": [(", true)", ", false)"), (", false)", ", true)")],
    "outer": [("asof left join", "asof join"), ("left join", "inner join"), ("full outer join", "inner join")],
    "half": [("anti join", "semi join"), ("semi join", "anti join")],
    "most": [("max(", "min("), ("min(", "max(")],
    "not": [(" not ", " "), ("not in (", "in ("), (" in (", " not in (")],
    "either": [(" or ", " and "), (" and ", " or ")],
    "one": [("> 1", "> 2"), ("<> 0", "<> 1"), ("= 0", "= 1")],
    "distinct": [("count(distinct ", "count(")],
}


class Mutant(NamedTuple):
    """One changed statement and its name."""

    name: str
    sql: str


def mutants(sql: str) -> Iterator[Mutant]:
    """Yield every mutant of a statement."""
    lines = sql.splitlines()
    start = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    saying = False
    for place in range(start, len(lines)):
        line = lines[place]
        if line in ("select", "select distinct"):
            saying = True
        elif saying and line.startswith("from "):
            saying = False
        if saying or line.lstrip().startswith("--"):
            continue
        for operator, changed in _changed(line):
            text = "\n".join([*lines[:place], changed, *lines[place + 1 :]])
            yield Mutant(f"{operator}@{place - start}: {line.strip()}", text)


def _changed(line: str) -> Iterator[tuple[str, str]]:
    if not PREDICATE.match(line):
        return
    stripped = line.strip()
    whole = line.count("(") == line.count(")")
    if whole and stripped.startswith("and "):
        yield "drop", ""
    elif whole and stripped.startswith(("where ", "on ")) and "json_each" not in line:
        word = stripped.split(" ")[0]
        yield "drop", line.replace(stripped, f"{word} true")
    for operator, swaps in SWAPS.items():
        for old, new in swaps:
            at = line.find(old)
            if at >= 0 and not (old == " = " and " as " in line):
                yield operator, line[:at] + new + line[at + len(old) :]
                break
    for match in re.finditer(r"'([a-z_A-Z]+)'", line):
        if not line[: match.start()].rstrip().endswith(("||", "getvariable(", "then", "as", "->>")):
            yield "word", f"{line[: match.start()]}'other'{line[match.end() :]}"
