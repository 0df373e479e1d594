"""Verb `status`: every trajectory of a root, who works on it, and what waits for a person."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_root import JOURNAL, JSON, open_view, print_json, table


def status(
    journal: JOURNAL = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's; default: all.")] = None,
    open_only: Annotated[bool, typer.Option("--open", help="Leave out those that have ended.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds.")] = False,
    as_json: JSON = False,
) -> None:
    """Show every trajectory of a root: owner, lease, age, stages, doubts, approvals, obligations, how it ended."""
    from trajlake.runtime.root_view import status_row

    view = open_view(journal)
    while True:
        now_us = view.root.env.now_us()
        rows = [status_row(one, now_us) for one in view.trajectories() if tenant in (None, one.tenant)]
        rows = [row for row in rows if not (open_only and row.status in ENDED)]
        if watch and sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")
        if as_json:
            print_json([msgspec.to_builtins(row) for row in rows])
        else:
            table(HEADINGS, [cells(row) for row in rows], empty="no trajectories here")
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(2.0)


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
    waits += [facts["trouble"]] if facts["trouble"] else []
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
