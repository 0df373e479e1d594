"""The evidence on one trajectory as one page: what happened, who allowed it, what the model saw, the proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from . import html_page as h

PAYLOAD_SHOWN_MAX: Final = 4_000
"""Characters of one payload on the page; the JSON holds all."""
PREVIEW_MAX: Final = 160
Tree = dict[str, Any]


def evidence_page(evidence: Tree) -> str:
    """Return the page."""
    title = f"Evidence: {evidence['trajectory_id']}"
    parts = [
        f"<h1>Evidence on {h.code(evidence['trajectory_id'])}</h1>",
        _place(evidence),
        _attestation(evidence["proofs"]),
        "<h2>The trajectory</h2>",
        _trajectory(evidence["trajectory"]),
        "<h2>In doubt</h2>",
        _doubts(evidence["actions"]),
        "<h2>Actions</h2>",
        *(_action(action) for action in evidence["actions"]),
        "<h2>What the model saw at each reply</h2>",
        _contexts(evidence),
        "<h2>Events</h2>",
        *(_event(event) for event in evidence["events"]),
        *_aside(evidence["not_counted"]),
        "<h2>Proofs</h2>",
        _proofs(evidence["proofs"]),
    ]
    return h.page(title, "\n".join(parts))


def _place(evidence: Tree) -> str:
    where = f"snapshot {h.shown(evidence['snapshot'])} of {h.code(evidence['lake'])}"
    return f'<p class="lead">tenant {h.code(evidence["tenant"])}, {where}</p>'


def _attestation(proofs: Tree) -> str:
    chain = "the hash chain holds" if not proofs["chain"] else f"the hash chain has {len(proofs['chain'])} faults"
    kept = (
        "self-attested: no anchor kept outside the lake was compared"
        if proofs["self_attested"]
        else "compared with an anchor kept outside the lake"
    )
    return f'<p class="note">{h.shown(chain)}; {h.shown(kept)}</p>'


def _trajectory(row: Tree | None) -> str:
    if row is None:
        return "<p>It has no row in trajectories.</p>"
    names = (
        "status", "kind", "agent", "principal", "subjects", "model_id", "model_version", "policy_version", "started_at",
        "last_event_at", "ended_at", "end_reason", "events", "turns", "tool_calls", "in_doubt", "superseded",
        "held_back", "conflicts", "resumes", "roll_backs", "task", "result",
    )  # fmt: skip
    return h.facts((name.replace("_", " "), h.shown(row[name])) for name in names if row.get(name) not in (None, ""))


def _doubts(actions: Iterable[Tree]) -> str:
    rows = [(h.code(a["action_id"]), h.shown(a.get("tool")), h.shown(a["doubt"])) for a in actions if a["doubt"]]
    return h.table(("action", "tool", "doubt"), rows, ("15%", "20%", "65%")) if rows else "<p>Nothing ever was.</p>"


def _action(action: Tree) -> str:
    about = [
        (name.replace("_", " "), h.code(action[name]))
        for name in ("effect", "stage", "status", "idempotency_key", "arguments", "arguments_hash", "approval_id")
        if action.get(name) is not None
    ]
    steps = [
        (_link(step["sequence_number"]), h.shown(step["type"]), h.code(_text(_said(step)))) for step in action["steps"]
    ]
    title = (
        f"{h.code(action['action_id'])} {h.shown(action.get('tool'))} {h.badge(str(action.get('stage', '')), 'none')}"
    )
    return h.details(
        title, h.facts(about) + h.table(("event", "type", "says"), steps, ("10%", "20%", "70%")), is_open=True
    )


def _said(step: Tree) -> Tree:
    return {
        name: value for name, value in step.items() if name not in ("sequence_number", "type", "key", "arguments_hash")
    }


def _contexts(evidence: Tree) -> str:
    previews = {event["sequence_number"]: _preview(event) for event in evidence["events"]}
    parts = []
    for context in evidence["contexts"]:
        rows = [
            (
                _link(number) if up == 0 else h.shown(f"ancestor {up}, event {number}"),
                h.shown(previews.get(number, "")) if up == 0 else "",
            )
            for up, number in context["items"]
        ]
        model = h.shown(context["served_model"] or "an unnamed model")
        title = f"reply {_link(context['reply'])} of {model}: {len(rows)} items"
        fault = f'<p class="note">{h.shown(context["error"])}</p>' if context["error"] else ""
        parts.append(h.details(title, fault + h.table(("event", "begins"), rows, ("15%", "85%"))))
    return "".join(parts) or "<p>No reply.</p>"


def _preview(event: Tree) -> str:
    payload = event["payload"]
    if isinstance(payload, dict):
        for name in ("wire", "output", "text", "raw"):
            if payload.get(name) is not None:
                return f"{event['type']}: {_text(payload[name])[:PREVIEW_MAX]}"
    return str(event["type"])


def _event(event: Tree) -> str:
    text = "erased" if event["payload_text"] is None else event["payload_text"]
    cut = len(text) - PAYLOAD_SHOWN_MAX
    more = f"<p>{cut:,} more characters are in evidence.json.</p>" if cut > 0 else ""
    marks = " " + h.badge("given up", "warn") if event["given_up"] else ""
    title = f"{h.shown(event['sequence_number'])} {h.shown(event['type'])} {h.shown(event['recorded_at'])}{marks}"
    about = h.facts(
        [
            ("turn", h.shown(event["turn"])),
            ("token", h.shown(event["fencing_token"])),
            ("hash", h.code(event["hash"])),
            ("commitment", h.code(event["commitment"])),
        ]
    )
    inside = h.details(title, about + h.block(text[:PAYLOAD_SHOWN_MAX]) + more)
    return f'<div id="e{int(event["sequence_number"])}">{inside}</div>'


def _aside(rows: list[Tree]) -> list[str]:
    if not rows:
        return []
    cells = [
        (
            h.shown(r["sequence_number"]),
            h.shown(r["event_type"]),
            h.shown(r["fencing_token"]),
            h.shown(r["reason"]),
            h.code(r["payload"]),
        )
        for r in rows
    ]
    head = ("event", "type", "token", "why", "payload")
    return ["<h2>Events that do not count</h2>", h.table(head, cells, ("8%", "14%", "10%", "12%", "56%"))]


def _proofs(proofs: Tree) -> str:
    faults = [(_link(f["sequence_number"]), h.shown(f["kind"]), h.shown(f["detail"])) for f in proofs["chain"]]
    anchors = [
        (
            h.code(a["anchor_id"]),
            h.shown("outside" if a["kept_outside"] else "in the lake"),
            _link(a["sequence_number"]),
            h.shown("present" if a["is_present"] else "ABSENT"),
            h.code(a["public_key"]),
        )
        for a in proofs["anchors"]
    ]
    parts = [h.facts([("head", h.code(proofs["head"])), ("erased", "yes" if proofs["erased"] else "no")])]
    if faults:
        parts.append(h.table(("event", "rule", "fault"), faults, ("10%", "15%", "75%")))
    if anchors:
        parts.append(h.table(("anchor", "kept", "head at", "is", "key"), anchors, ("30%", "12%", "10%", "10%", "38%")))
    return "".join(parts)


def _link(number: Any) -> str:
    return f'<a href="#e{number}">{number}</a>' if isinstance(number, int) else h.shown(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
