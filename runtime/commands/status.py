"""Verb `status`: every trajectory of a root, who works on it, and what waits for a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, damaged, open_view, print_json, table


def status(
    journal: JOURNAL = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's; default: all.")] = None,
    open_only: Annotated[bool, typer.Option("--open", help="Leave out those that have ended.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds.")] = False,
    warm: Annotated[str | None, typer.Option("--warm", help="Ask this warm tier for the whole fleet.")] = None,
    as_json: JSON = False,
) -> None:
    """Show every trajectory of a root: owner, lease, age, stages, doubts, approvals, obligations, how it ended."""
    rows_now = _fleet(warm, tenant, open_only) if warm else _root(journal, tenant, open_only)
    while True:
        headings, rows, lines, notes = rows_now()
        if watch and sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")
        if as_json:
            print_json(rows)
        else:
            table(headings, lines, empty="no trajectories here")
            for note in notes:
                print(one_line(note))
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(2.0)


Page = tuple[tuple[str, ...], list[Any], list[list[str]], list[str]]
"""Headings, the rows as data, the rows as texts, and lines to stand below them."""


def _root(journal: str | None, tenant: str | None, open_only: bool) -> Callable[[], Page]:
    from trajlake.runtime.root_view import status_row

    view = open_view(journal)

    def look() -> Page:
        now_us = view.root.env.now_us()
        found = [status_row(one, now_us) for one in view.trajectories() if tenant in (None, one.tenant)]
        found = [row for row in found if not (open_only and row.status in ENDED)]
        troubles = dict.fromkeys((*(row.trouble for row in found), *view.troubles.values()))
        notes = [str(damaged(one, view.root)) for one in troubles if one]
        return HEADINGS, [msgspec.to_builtins(row) for row in found], [cells(row) for row in found], notes

    return look


def _fleet(url: str, tenant: str | None, open_only: bool) -> Callable[[], Page]:
    from trajlake.runtime.stores import fleet

    opened = fleet(url)

    def look() -> Page:
        found = opened.rows(tenant, open_only=open_only)
        return FLEET_HEADINGS, found, [fleet_cells(row) for row in found], []

    return look


def fleet_cells(row: dict[str, Any]) -> list[str]:
    """Return the texts of one line of a fleet."""
    waits = [f"{row[name]} {name.replace('_', ' ')}" for name in FLEET_COUNTS if row[name]]
    return [
        row["trajectory_id"] if row["tenant"] == "default" else f"{row['tenant']}/{row['trajectory_id']}",
        row["status"],
        row["owner"],
        f"{row['lease_s']:.0f} s" if row["lease_s"] else "",
        "" if row["age_s"] is None else span(max(0.0, row["age_s"])),
        str(row["turn"]) if row["turn"] >= 0 else "",
        str(row["events"]),
        ", ".join(waits),
    ]


FLEET_HEADINGS = ("trajectory", "status", "owner", "lease", "age", "turn", "events", "waits for")
FLEET_COUNTS = ("doubts", "approvals", "mail", "held_back", "superseded", "conflicts")
ENDED = frozenset({"completed", "failed", "cancelled", "interrupted"})
HEADINGS = ("trajectory", "status", "owner", "lease", "age", "turn", "events", "stages", "waits for", "next")


def cells(row: object) -> list[str]:
    """Return the texts of one line."""
    facts = msgspec.to_builtins(row)
    waits = [f"doubt {one['action_id']} {one['tool']}" for one in facts["doubts"]]
    waits += [f"approval {one['approval_id']} {one['tool']}" for one in facts["approvals"]]
    waits += [f"owes {one['text']}" for one in facts["obligations"]]
    waits += [f"{facts['mail']} mail"] if facts["mail"] else []
    waits += [f"{facts['held_back']} held back"] if facts["held_back"] else []
    waits += ["CONFLICT"] if facts["conflicts"] else []
    waits += ["damage (below)"] if facts["trouble"] else []
    return [
        facts["trajectory_id"] if facts["tenant"] == "default" else f"{facts['tenant']}/{facts['trajectory_id']}",
        facts["status"],
        facts["owner"],
        f"{facts['lease_s']:.0f} s" if facts["lease_s"] else "",
        "" if facts["age_s"] is None else span(facts["age_s"]),
        str(facts["turn"]) if facts["turn"] >= 0 else "",
        str(facts["events"]),
        " ".join(f"{count} {stage}" for stage, count in sorted(facts["stages"].items())),
        "; ".join(waits),
        facts["next"],
    ]


def span(seconds: float) -> str:
    """Return a length of time as a person says it."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
