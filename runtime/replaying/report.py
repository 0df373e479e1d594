"""What a replay found: the first difference with its turn, both sides, its cause and where it comes from.

| source          | how it enters a trajectory                            | what the runtime does about it        |
|-----------------|-------------------------------------------------------|---------------------------------------|
| `model call`    | sampling; sums in another order, at temperature 0 too | records every reply, never asks again |
| `model drift`   | another model behind the same name                    | records the served version            |
| `harness input` | code, clock, chance, listings, retrieval              | records what is read through the turn |
| `environment`   | services, files, data that changed since              | records every result                  |

In a replay the replies and results are the recorded ones, so a difference is always on the side of the harness: its
code, or something it read past the log. `component` says which part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from .diff import Change

Verdict = Literal["same", "differs", "refused"]
Source = Literal["model call", "model drift", "harness input", "environment", ""]

SHOWN_MAX: Final = 160
NOT_SHOWN: Final = (
    "A replay shows whether this harness handles the recorded replies as the recording one did. It does not show "
    "whether it succeeds more often: a model's later replies would answer to the new harness. That takes new "
    "trajectories."
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a replay found. `turn`, `operation`, `expected`, `got` and `cause` name the first difference.

    `cause`: extra, missing, changed, reordered, or raised (the harness raised what it did not raise before); of a
    refusal, why. `component`: which part, beneath `source`. `sequence_number`: the recorded event it is about.
    `diff`: the two sides, place by place. `notes`: what was not judged, and what could not be intercepted.
    """

    verdict: Verdict
    turn: int | None = None
    operation: str = ""
    expected: Any = None
    got: Any = None
    cause: str = ""
    component: str = ""
    source: Source = ""
    sequence_number: int | None = None
    diff: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    trajectory_id: str = ""
    events: int = 0

    @property
    def same(self) -> bool:
        return self.verdict == "same"

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values: both outcomes whole."""
        tree: dict[str, Any] = {"id": self.trajectory_id, "verdict": self.verdict, "events": self.events}
        if self.verdict == "refused":
            tree["cause"] = self.cause
        if self.verdict == "differs":
            tree |= {
                "turn": self.turn, "operation": self.operation, "cause": self.cause, "source": self.source,
                "component": self.component, "sequence_number": self.sequence_number, "expected": self.expected,
                "got": self.got, "diff": list(self.diff),
            }  # fmt: skip
        if self.notes:
            tree["notes"] = list(self.notes)
        plain: dict[str, Any] = msgspec.to_builtins(tree, enc_hook=repr)
        return plain

    def text(self) -> str:
        """Return the report for people; the first line stands alone."""
        name = f"{self.trajectory_id}: " if self.trajectory_id else ""
        if self.verdict == "refused":
            return f"{name}refused: {self.cause}"
        if self.verdict == "same":
            return "\n".join([f"{name}same", *(f"  note: {note}" for note in self.notes)])
        where = f" (event {self.sequence_number})" if self.sequence_number is not None else ""
        lines = [
            f"{name}differs at turn {self.turn}, {self.operation}{where}: {self.cause}",
            f"  source: {self.source}; component: {self.component}",
            f"  expected: {shown(self.expected)}",
            f"  got:      {shown(self.got)}",
        ]
        lines += [f"  {change.kind} {change.path or '(whole)'}: {_sides(change)}" for change in self.diff[:8]]
        if len(self.diff) > 8:
            lines.append(f"  and {len(self.diff) - 8} more places")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _sides(change: Change) -> str:
    if change.kind == "missing":
        return shown(change.expected)
    if change.kind == "extra":
        return shown(change.got)
    before, after = around(change.expected, change.got)
    return f"{before} -> {after}"


def around(expected: Any, got: Any) -> tuple[str, str]:
    """Return two values for people; of two long texts, what stands around the first place where they part."""
    if not (isinstance(expected, str) and isinstance(got, str)) or len(expected) + len(got) < SHOWN_MAX:
        return shown(expected), shown(got)
    at = next((place for place, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), 0)
    at = max(0, at - 20)
    lead = "…" if at else ""
    return lead + shown(expected[at : at + SHOWN_MAX]), lead + shown(got[at : at + SHOWN_MAX])


def shown(value: Any) -> str:
    """Return a value on one line, cut for people."""
    text = value if isinstance(value, str) else _json(value)
    text = repr(text)[1:-1] if "\n" in text else text
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError):
        return repr(value)
