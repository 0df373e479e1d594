"""From what one trial left to findings: the ledger (what the tools saw) beside the record (what the log says)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trajlake.schemas.envelope import Event
from trajlake.schemas.state.budget import GRANT, SPENT

from .ledger import Line, Seen, Visit, visits_of
from .places import Told

KINDS: Final[dict[str, str]] = {
    "duplicated-effect": "give the tool a key that its service honours, a probe, or a gateway",
    "lost-effect": "return from the body only when the effect has happened",
    "effect-outside-tool": "make it a tool, and call it with turn.call",
    "effect-before-intent": "this is a bug of trajlake: please report it",
    "fresh-key": "send call.key, the same for every attempt, instead of a key of the tool's own",
    "read-changes": "declare what the tool is: local if it changes the workspace, else idempotent or external",
    "local-reaches-out": "declare it idempotent or external, or keep it inside the workspace",
    "carried-locals": "keep what outlives a turn in t.vars",
    "clock-or-chance": "read them through the turn: turn.now(), turn.random(), turn.uuid(), turn.read(...)",
    "cannot-resume": "make the same operations from the same answers; see `trajlake resume --close-turn`",
}
"""Each kind of finding, in the order of a report, and what to do about it."""


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake: `about` names it (a tool, a place), `what` shows it."""

    kind: str
    about: str
    what: str


@dataclass(frozen=True)
class Evidence:
    """What one trial left: ledger, canonical events of all its trajectories, how it ended, its replay."""

    lines: list[Line]
    events: list[Event]
    told: Told | None
    replayed: Told | None = None
    hung: bool = False


def judge(found: Evidence, undisturbed: Evidence | None, reads: list[str]) -> list[Finding]:
    """Return what is wrong with a trial. `undisturbed`: None for that one itself; `reads`: clock and chance read past
    the log, in any replay.
    """
    visits = visits_of(found.lines)
    findings = [*_declared(visits), *_outside_tools(found.lines, visits), *_keys(visits), *_intents(found, visits)]
    findings += _doubled_or_lost(found, visits)
    if undisturbed is not None:
        findings += _direct_calls(visits, visits_of(undisturbed.lines))
        findings += _ends(found)
    findings += _differences(found, undisturbed, [*reads, *(found.replayed.reads if found.replayed else [])])
    return findings


def acts_past_tools(lines: list[Line]) -> bool:
    """Whether the agent's own code acts: a replay would act again."""
    return any(line.kind == "harness" or (line.kind == "enter" and not line.action) for line in lines)


def _declared(visits: list[Visit]) -> Iterator[Finding]:
    for one in visits:
        seen = one.leave.seen if one.leave is not None else None
        if seen is None:
            continue
        tool, effect = one.enter.tool, one.enter.effect
        sent = [request for request in seen.requests if not request.startswith(("GET ", "HEAD ", "OPTIONS "))]
        if effect == "read" and (did := [*seen.files, *seen.outside, *sent]):
            yield Finding("read-changes", tool, f"{tool} is declared read; it {_listed(did)}")
        if effect == "local" and (did := [*seen.outside, *sent, *_unreadable(seen)]):
            yield Finding("local-reaches-out", tool, f"{tool} is declared local; it {_listed(did)}")


def _unreadable(seen: Seen) -> list[str]:
    connected = [words for words in seen.unseen if words.startswith("connected")]
    return connected if not seen.requests else []


def _outside_tools(lines: list[Line], visits: list[Visit]) -> Iterator[Finding]:
    for line in lines:
        if line.kind == "harness":
            yield Finding("effect-outside-tool", line.place, f"the agent's own code {line.what} at {line.place}")
    for one in visits:
        if not one.enter.action:
            tool = one.enter.tool
            yield Finding("effect-outside-tool", tool, f"{tool} was called directly, not through its turn")


def _keys(visits: list[Visit]) -> Iterator[Finding]:
    attempts: dict[tuple[str, str], list[Visit]] = {}
    for one in visits:
        if one.enter.keyed and one.enter.key and one.leave is not None and one.leave.seen is not None:
            attempts.setdefault((one.enter.tool, one.enter.key), []).append(one)
    for (tool, _), mine in attempts.items():
        all_seen = [one.leave.seen for one in mine if one.leave is not None and one.leave.seen is not None]
        sent = {seen.sent for seen in all_seen if seen.sent}
        if len(sent) > 1 and not any(seen.key_sent for seen in all_seen):
            yield Finding("fresh-key", tool, f"{tool} sent something else at each attempt under one key, never the key")
        elif not sent:
            drawn = [seen for seen in all_seen if seen.draws and not seen.key_read]
            if drawn:
                text = f"{tool} never reads call.key, and draws on {', '.join(drawn[0].draws)}"
                yield Finding("fresh-key", tool, text)


def _intents(found: Evidence, visits: list[Visit]) -> Iterator[Finding]:
    known = {(event.trajectory_id, event.body.action_id) for event in found.events if event.type == "ToolIntent"}
    for one in visits:
        enter = one.enter
        if not enter.action or enter.effect == "read":
            continue
        if not enter.intent_durable or (enter.trajectory_id, enter.action) not in known:
            text = f"{enter.tool} began before the intent of {enter.action} was durable"
            yield Finding("effect-before-intent", enter.tool, text)


def _doubled_or_lost(found: Evidence, visits: list[Visit]) -> Iterator[Finding]:
    done: Counter[tuple[str, str]] = Counter()
    for one in visits:
        if one.enter.action and one.done:
            done[one.enter.trajectory_id, one.enter.action] += 1
    by_action = {(one.enter.trajectory_id, one.enter.action): one.enter for one in visits}
    for action, count in done.items():
        enter = by_action[action]
        if count > 1 and not enter.keyed and enter.effect != "read":
            text = f"{enter.tool} ({enter.action}) ended well {count} times and no key protects it"
            yield Finding("duplicated-effect", enter.tool, text)
    for event in found.events:
        body = event.body
        happened = (event.type == "ToolResult" and body.status == "ok") or (
            event.type == "ToolSettled" and body.verdict == "executed"
        )
        if happened and not done[event.trajectory_id, body.action_id]:
            tool = next(
                (one.body.tool for one in found.events if one.type == "ToolIntent" and _same_action(one, event)), "?"
            )
            yield Finding(
                "lost-effect", tool, f"the record says that {tool} ({body.action_id}) happened; no body did it"
            )


def _same_action(one: Event, other: Event) -> bool:
    return bool(one.trajectory_id == other.trajectory_id and one.body.action_id == other.body.action_id)


def _direct_calls(visits: list[Visit], before: list[Visit]) -> Iterator[Finding]:
    def count(of: list[Visit]) -> Counter[tuple[str, str]]:
        plain = [one.enter for one in of if not one.enter.action and one.done and one.enter.effect != "read"]
        return Counter((one.tool, one.arguments_hash) for one in plain)

    wanted, got = count(before), count(visits)
    for tool, arguments in sorted(wanted.keys() | got.keys()):
        here, there = got[tool, arguments], wanted[tool, arguments]
        if here > there:
            text = f"{tool}, called outside a turn, acted {here} times instead of {there}"
            yield Finding("duplicated-effect", tool, text)
        elif here < there:
            text = f"{tool}, called outside a turn, acted {here} times instead of {there}"
            yield Finding("lost-effect", tool, text)


def _ends(found: Evidence) -> Iterator[Finding]:
    told = found.told
    if found.hung:
        yield Finding("cannot-resume", "", "a life did not end in time, and was killed")
    elif told is None:
        yield Finding("cannot-resume", "", "the process died at no boundary of ours")
    elif told.refused or told.error:
        if told.error_type != "Diverged":
            yield Finding("cannot-resume", told.error_type, (told.refused or told.error).splitlines()[0])
    elif told.status == "parked" and not told.waiting:
        yield Finding("cannot-resume", "", "the trajectory is parked and waits for nothing")


def _differences(found: Evidence, undisturbed: Evidence | None, reads: list[str]) -> Iterator[Finding]:
    """What only memory outside the log, or clock and chance, can explain."""
    shown = ""
    told, replayed = found.told, found.replayed
    if told is not None and told.error_type == "Diverged":
        shown = told.error.splitlines()[0]
    elif replayed is not None and replayed.verdict == "differs":
        shown = replayed.report
    elif undisturbed is not None and undisturbed.told is not None and told is not None:
        before = undisturbed.told
        if (told.status, told.result) != (before.status, before.result) and answers(found) == answers(undisturbed):
            shown = f"from the same answers it ended {_end(told)} instead of {_end(before)}"
    if shown and reads:
        yield Finding("clock-or-chance", _read_name(reads[0]), f"{reads[0]}; {shown}")
    elif shown:
        yield Finding("carried-locals", "", shown)


def answers(found: Evidence) -> list[Any]:
    """What an agent was told, in order: replies, results, recorded inputs."""
    told: list[Any] = []
    for event in found.events:
        body = event.body
        if event.type == "ModelReplied" and body.status == "kept":
            told.append(("model", body.raw))
        elif event.type in ("ToolResult", "ToolSettled"):
            status = body.status if event.type == "ToolResult" else {"executed": "ok"}.get(body.verdict, body.verdict)
            told.append((body.action_id, status, body.output))
        elif event.type == "InputRead" and body.kind not in (GRANT, SPENT):
            told.append((body.kind, body.name, body.value))
    return told


def _read_name(note: str) -> str:
    return note.partition(": ")[2].partition(" was read")[0]


def _end(told: Told) -> str:
    return f"{told.status} {told.result!r}"[:200]


def _listed(words: list[str]) -> str:
    different = list(dict.fromkeys(words))
    return ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
