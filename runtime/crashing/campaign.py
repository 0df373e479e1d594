"""A crash test from its first life to its report: undisturbed, then one trial for each chosen boundary."""

from __future__ import annotations

import importlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from trajlake.schemas.envelope import Event

from ..cli_errors import UserError
from ..root import Root
from ..root_view import RootView
from .judge import Evidence, acts_past_tools, judge
from .ledger import visits_of
from .life import Plan, live, replay_life
from .person import answer
from .places import Place, Told
from .processes import Ended, Life, Trial, run_all
from .report import Report

PRELOADED: Final = (
    "models",
    "gateway",
    "replaying.replay_run",
    "replaying.imported",
    "replaying.intercept",
    "mailbox.file_mail",
    "upkeep.backup",
)
"""Parts of this project that lives need: imported once, before the forks."""
LIVES_MAX: Final = 12
"""Lives of one trial, each ended by a question that could be answered; more is a trajectory that never ends."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is asked for. `at`: only these boundaries, by number or name; `sample`: so many of them, by `seed`;
    `limit_s`: start no more trials after it. `template` is copied into each place; `workspace` is a name in it.
    `keep`: leave the place of every trial, not only that of the undisturbed one.
    """

    agent: str
    at: tuple[str, ...] = ()
    sample: int | None = None
    seed: int = 0
    limit_s: float = 600.0
    life_s: float = 60.0
    jobs: int = 2
    template: str = ""
    workspace: str = "work"
    keep: bool = False


@dataclass(frozen=True)
class Verdict:
    """What one trial left: `at` 0 is the undisturbed one."""

    at: int
    evidence: Evidence
    killed: bool = False


class Campaign:
    """One crash test in a scratch folder that the caller removes. Not for several threads: it forks."""

    def __init__(self, plan: Plan, choice: Choice, scratch: str) -> None:
        self._scratch, self._choice = scratch, choice
        self._plan = replace(plan, replies=os.path.join(scratch, "replies"))
        os.makedirs(self._plan.replies)
        for name in PRELOADED:
            importlib.import_module(f"trajlake.runtime.{name}")
        self._undisturbed: Evidence | None = None
        self._reads: list[str] = []
        self._replays = True

    def run(self, progress: Callable[[int, int], None]) -> Report:
        """Run it all. Raises `UserError`: 2 for a boundary that is not there, 3 where the agent does not run at all."""
        began = time.monotonic()
        report = Report(agent=self._choice.agent, seed=self._choice.seed)
        self._run_undisturbed(report)
        chosen = self._chosen(report.boundaries)
        report.chosen = len(chosen)

        def until_late() -> Iterator[Trial]:
            for at in chosen:
                if time.monotonic() - began > self._choice.limit_s:
                    report.out_of_time = True
                    return
                yield self._trial(at)

        for done, verdict in enumerate(run_all(until_late(), self._choice.jobs), start=1):
            self._count(report, verdict)
            progress(done, len(chosen))
        report.seconds = time.monotonic() - began
        return report

    def place(self, at: int) -> Place:
        """Where the trial of a boundary lives."""
        return Place(os.path.join(self._scratch, f"trial-{at:05d}"), self._choice.workspace)

    # -- the undisturbed run -----------------------------------------------------------------------------------------

    def _run_undisturbed(self, report: Report) -> None:
        (verdict,) = run_all([self._trial(0)], 1)
        evidence: Evidence = verdict.evidence
        told, place = evidence.told, self.place(0)
        if told is None or evidence.hung or told.refused or told.error:
            why = "it did not end" if told is None or evidence.hung else told.refused or told.error
            code = told.code if told is not None else 3
            raise UserError(f"agent {self._choice.agent!r} does not run undisturbed: {why}", exit_code=code)
        lives = sum(1 for name in os.listdir(place.kept) if name.startswith("trace-"))
        report.boundaries = [label for life in range(lives) for label in place.boundaries(life)]
        report.ended = f"{told.status} {told.result!r}"[:200] if told.result is not None else told.status
        report.tools = dict(Counter(one.enter.tool for one in visits_of(evidence.lines)))
        cold = replace(evidence, replayed=None)
        if self._replays:
            (cold_told,) = run_all([self._replay_cold()], 1)
            cold = replace(evidence, replayed=cold_told)
            self._reads = [
                *(evidence.replayed.reads if evidence.replayed else []),
                *(cold_told.reads if cold_told else []),
            ]
        self._undisturbed = evidence
        for finding in {*judge(evidence, None, self._reads), *judge(cold, None, self._reads)}:
            report.add(finding, 0)

    def _replay_cold(self) -> Trial:
        told = yield from self._replay(self.place(0), cold=True)
        return told

    def _chosen(self, boundaries: list[str]) -> list[int]:
        choice = self._choice
        numbers = list(range(1, len(boundaries) + 1))
        if choice.at:
            found: list[int] = []
            for at in choice.at:
                mine = [number for number in numbers if at in (str(number), boundaries[number - 1])]
                if not mine:
                    text = f"--at {at!r}: the undisturbed run came to {len(numbers)} boundaries, such as"
                    raise UserError(f"{text} {', '.join(map(repr, boundaries[:: max(1, len(numbers) // 5)]))}")
                found += mine
            return found
        order = random.Random(choice.seed)
        if choice.sample is not None and choice.sample < len(numbers):
            return sorted(order.sample(numbers, choice.sample))
        order.shuffle(numbers)  # so that a limit of time leaves out some of every part
        return numbers

    # -- one trial -----------------------------------------------------------------------------------------------------

    def _trial(self, at: int) -> Trial:
        """All lives of one trial, then its replay. `at` counts on through the lives of the undisturbed run."""
        place = self.place(at)
        place.make(self._choice.template)
        answered: set[tuple[str, str]] = set()
        left, killed, life = at, False, 0
        told: Told | None = None
        ended = Ended()
        while life < LIVES_MAX:
            work = partial(live, self._plan, place, life, left if not killed else 0)
            ended = yield Life(work, place.told(str(life)), place.output(str(life)), self._choice.life_s)
            told = place.read_told(str(life))
            life += 1
            if ended.hung or (told is None and not (ended.killed and not killed and at)):
                break
            if told is None:
                killed = True
                continue
            left -= 0 if killed else told.boundaries
            if told.status != "parked" or told.error or not answer(place, answered):
                break
        else:
            told = Told(error=f"it did not end within {LIVES_MAX} lives")
        lines = place.lines()
        if at == 0:
            self._replays = not acts_past_tools(lines)
        replayed = None
        if told is not None and not told.error and not told.refused and not ended.hung and self._replays:
            replayed = yield from self._replay(place, cold=False)
        verdict = Verdict(at, Evidence(lines, _events(place), told, replayed, ended.hung), killed)
        if at and not self._choice.keep:  # the undisturbed one is replayed once more
            place.remove()
        return verdict

    def _replay(self, place: Place, *, cold: bool) -> Trial:
        name = "cold" if cold else "warm"
        work = partial(replay_life, self._plan, place, cold=cold)
        yield Life(work, place.told(name), place.output(name), self._choice.life_s)
        return place.read_told(name)

    def _count(self, report: Report, verdict: Verdict) -> None:
        if verdict.killed:
            report.killed += 1
        else:
            report.not_reached += 1
        told = verdict.evidence.told
        if told is not None and told.status == "parked":
            report.left_open += 1
        for finding in judge(verdict.evidence, self._undisturbed, self._reads):
            report.add(finding, verdict.at)


def _events(place: Place) -> list[Event]:
    """The canonical events of every trajectory in the root of a place."""
    if not os.path.isdir(place.root):
        return []
    view = RootView(Root.open(place.root, create=False))
    return [event for one in view.trajectories() if one.history is not None for event in one.history.events]
