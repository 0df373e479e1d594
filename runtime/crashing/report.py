"""What a crash test found, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .judge import KINDS, Finding

SHOWN_MAX = 5
"""Boundaries that are named of each finding."""


@dataclass
class Kept:
    """One finding and where it was seen: the numbers and names of boundaries; 0 is the undisturbed run."""

    finding: Finding
    at: list[int] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


@dataclass
class Report:
    """The whole test. `boundaries`: names, in order, of those of the undisturbed run."""

    agent: str
    seed: int
    boundaries: list[str] = field(default_factory=list)
    chosen: int = 0
    killed: int = 0
    not_reached: int = 0
    left_open: int = 0
    seconds: float = 0.0
    out_of_time: bool = False
    ended: str = ""
    tools: dict[str, int] = field(default_factory=dict)
    kept: dict[tuple[str, str], Kept] = field(default_factory=dict)
    scratch: str = ""

    @property
    def findings(self) -> list[Kept]:
        """One for each kind and thing it is about, in the order of `KINDS`."""
        order = list(KINDS)
        return sorted(self.kept.values(), key=lambda one: (order.index(one.finding.kind), one.finding.about))

    @property
    def kinds(self) -> list[str]:
        """The kinds that were found."""
        return list(dict.fromkeys(one.finding.kind for one in self.findings))

    def add(self, finding: Finding, at: int) -> None:
        """Count a finding of the trial that was killed at a boundary (0: at none)."""
        kept = self.kept.setdefault((finding.kind, finding.about), Kept(finding))
        if at not in kept.at:
            kept.at.append(at)
            kept.places.append(self.boundaries[at - 1] if 0 < at <= len(self.boundaries) else "undisturbed")

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "agent": self.agent, "seed": self.seed, "boundaries": self.boundaries, "chosen": self.chosen,
            "killed": self.killed, "not_reached": self.not_reached, "left_to_a_person": self.left_open,
            "seconds": round(self.seconds, 1), "out_of_time": self.out_of_time, "undisturbed": self.ended,
            "tools": self.tools, "scratch": self.scratch,
            "findings": [
                {
                    "kind": one.finding.kind, "about": one.finding.about, "what": one.finding.what,
                    "do": KINDS[one.finding.kind], "at": sorted(one.at),
                }
                for one in self.findings
            ],
        }  # fmt: skip

    def text(self) -> str:
        """Return the report for people."""
        calls = ", ".join(f"{name} {count}" for name, count in sorted(self.tools.items())) or "none"
        lines = [
            f"{self.agent}: {len(self.boundaries)} boundaries; killed at {self.killed} in {self.seconds:.1f} s",
            f"  undisturbed: {self.ended}; bodies run: {calls}",
        ]
        if self.out_of_time:
            lines.append(f"  the time was over before {self.chosen - self.killed - self.not_reached} more")
        if self.not_reached:
            lines.append(f"  {self.not_reached} were not come to again: the order of steps differs from run to run")
        if self.left_open:
            lines.append(
                f"  {self.left_open} runs wait for a person: a body was cut short, and only its service can tell"
            )
        for one in self.findings:
            at = sorted(zip(one.at, one.places, strict=True))
            named = ", ".join(f"{number} ({place})" if number else place for number, place in at[:SHOWN_MAX])
            more = f" and {len(at) - SHOWN_MAX} more" if len(at) > SHOWN_MAX else ""
            lines += [
                f"{one.finding.kind}: {one.finding.what}",
                f"  at {named}{more}",
                f"  do: {KINDS[one.finding.kind]}",
            ]
        if not self.kept:
            lines.append("clean: nothing was done twice, lost, carried, or declared wrongly")
        if self.scratch:
            lines.append(f"kept: {self.scratch}")
        return "\n".join(lines)
