"""The report of an audit as one page for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from . import html_page as h
from .audit_run import ControlResult, Finding, Verdict
from .audit_session import FIRST_DAY, LAST_DAY

if TYPE_CHECKING:
    from .audit import Report

SHOWN_MAX: Final = 200
"""Findings of one control on the page; the files hold all."""
_KIND: Final[dict[Verdict, str]] = {"pass": "pass", "findings": "findings", "not applicable": "none"}


def report_page(report: Report) -> str:
    """Return the page."""
    by_control: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_control.setdefault(finding.control, []).append(finding)
    parts = [
        "<h1>Audit of a trajectory lake</h1>",
        f'<p class="lead">{_headline(report)}</p>',
        f'<p class="note">{h.shown(report.attestation.text)}</p>',
        "<h2>What was audited</h2>",
        _scope(report),
        "<h2>Controls</h2>",
        h.table(
            ("control", "verdict", "findings", "trajectories", "severity"),
            (_line(result) for result in report.results),
            ("46%", "14%", "10%", "20%", "10%"),
        ),
        "<h2>What each control says</h2>",
        *(_control(result, by_control.get(result.control.id, [])) for result in report.results),
    ]
    return h.page(f"Audit, snapshot {report.snapshot}", "\n".join(parts))


def _headline(report: Report) -> str:
    verdicts = [result.verdict for result in report.results]
    counts = [
        f"{verdicts.count('findings')} of {len(verdicts)} controls have findings ({report.found} in all)",
        f"{verdicts.count('pass')} pass",
        f"{verdicts.count('not applicable')} are not applicable",
    ]
    return h.shown(", ".join(counts) + ".")


def _scope(report: Report) -> str:
    scope = report.scope
    opened = sum(entry.read for entry in report.files)
    total = sum(entry.total for entry in report.files)
    return h.facts(
        [
            ("lake", h.code(report.lake)),
            ("snapshot", h.shown(f"{report.snapshot} (run {report.snapshot_run})")),
            ("tenant", h.code(scope.tenant) or "all"),
            ("trajectories started", h.shown(_days(scope.first, scope.last))),
            ("as of", h.shown(scope.now.isoformat())),
            ("audit run", h.code(report.run) + " at " + h.shown(report.at.isoformat(timespec="seconds"))),
            ("by", h.code(report.actor)),
            ("recorded in the lake", "yes" if report.recorded else "no"),
            (
                "positive control",
                h.badge("fired", "pass")
                + h.shown(f" every one of {report.positive.expected} known violations was found, and no other"),
            ),
            ("events", h.shown(f"{report.rows.get('events', 0):,} in scope")),
            ("data files", h.shown(f"{opened} of {total} could hold rows in scope and were read")),
            ("software", h.shown(", ".join(f"{name} {number}" for name, number in report.versions.items()))),
        ]
    )


def _days(first: dt.date, last: dt.date) -> str:
    if (first, last) == (FIRST_DAY, LAST_DAY):
        return "on any day"
    return f"{'' if first == FIRST_DAY else f'from {first} '}{'' if last == LAST_DAY else f'to {last}'}".strip()


def _line(result: ControlResult) -> tuple[str, ...]:
    control = result.control
    left_out = ", ".join(f"{count} {sort}" for sort, count in result.not_judged.items())
    judged = f"{result.trajectories}" + (f" (not: {left_out})" if left_out else "")
    name = f'<a href="#{h.shown(control.id)}">{h.shown(control.id)}</a> {h.shown(control.title)}'
    found = str(result.found) if result.verdict == "findings" else ""
    return name, h.badge(result.verdict, _KIND[result.verdict]), found, h.shown(judged), h.shown(control.severity)


def _control(result: ControlResult, found: list[Finding]) -> str:
    control = result.control
    head = (
        f'<h3 id="{h.shown(control.id)}">{h.shown(control.id)}: {h.shown(control.title)} '
        f"{h.badge(result.verdict, _KIND[result.verdict])}</h3>"
    )
    about = h.facts(
        [
            ("proves", h.shown(control.proves)),
            ("clauses", h.shown(control.clauses)),
            ("grain", h.shown(control.grain)),
            *([("note", h.shown(result.note))] if result.note else []),
            ("SQL", h.code(f"{control.sha256[:16]}…") + h.details("show", h.block(control.sql))),
        ]
    )
    return head + about + (_findings(found) if found else "")


def _findings(found: list[Finding]) -> str:
    rest = len(found) - SHOWN_MAX
    more = f"<p>{rest:,} more are in findings.csv and findings.parquet.</p>" if rest > 0 else ""
    head = ("tenant", "trajectory", "event", "action", "what", "with events", "detail")
    widths = ("9%", "17%", "7%", "8%", "15%", "10%", "34%")
    return h.table(head, _rows(found[:SHOWN_MAX]), widths) + more


def _rows(found: Iterable[Finding]) -> Iterable[tuple[str, ...]]:
    for one in found:
        yield (
            h.code(one.tenant),
            h.code(one.trajectory_id),
            h.shown(one.sequence_number),
            h.code(one.action_id),
            h.code(one.object),
            h.shown(" ".join(map(str, one.related))),
            h.shown(one.detail),
        )
