"""Many records through one harness: in this process or beside each other, with progress and a summary.

Each worker process imports the agent's module once and opens the source for itself; nothing but ids and reports passes
between processes. `check` is also what each element of the Beam pipeline does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ..agent.errors import AgentError, Misuse
from ..cli_errors import UserError
from ..named_module import imported
from .diff import Change
from .record import Source
from .report import NOT_SHOWN, Report
from .sources import open_source

if TYPE_CHECKING:
    from ..journal import Journal

CHUNK_MAX: Final = 32


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed with what: plain values, so that any process can open it.

    `agent`: `module:function`, "" for the one each record names. `journal` or `lake`: where the records are.
    """

    agent: str = ""
    journal: str | None = None
    lake: str | None = None
    tenant: str = "default"
    journal_object: str | None = None
    cold: bool = False
    intercept: bool = False


def check(suite: Suite, trajectory_id: str) -> Report:
    """Replay one trajectory. Whatever stops it from being replayed is a `refused` report."""
    try:
        record = _source(suite).record(trajectory_id)
        if record is None:
            return _refused(trajectory_id, f"nothing is recorded under this id by tenant {suite.tenant!r}")
        name = suite.agent
        if not name and not record.outline.problem:
            name = record.outline.notable[0].body.agent
        imported = not record.outline.problem and record.outline.notable[0].body.origin == "imported"
        if imported or record.outline.problem:
            from . import replay_run

            nobody: Any = None
            return replay_run.replay(nobody, record, journal=nobody)
        agent, journal = load_agent(name, suite.journal_object)
    except Exception as error:  # noqa: BLE001 - one bad record must not hide what the others say
        told = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
        return _refused(trajectory_id, told)
    from .replay_run import replay

    return replay(agent, record, journal=journal, cold=suite.cold, intercept=suite.intercept)


def check_all(
    suite: Suite, ids: Sequence[str], *, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> Iterator[Report]:
    """Yield the report of every id, as they come; `progress(done, of)` after each."""
    if jobs <= 1 or len(ids) < 2:
        for done, trajectory_id in enumerate(ids, 1):
            yield check(suite, trajectory_id)
            if progress is not None:
                progress(done, len(ids))
        return
    size = max(1, min(CHUNK_MAX, len(ids) // (jobs * 4)))
    chunks = [list(ids[at : at + size]) for at in range(0, len(ids), size)]
    done = 0
    with ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_check_chunk, suite, chunk) for chunk in chunks]):
            for report in future.result():
                done += 1
                yield report
                if progress is not None:
                    progress(done, len(ids))


def _check_chunk(suite: Suite, ids: list[str]) -> list[Report]:
    return [_portable(check(suite, trajectory_id)) for trajectory_id in ids]


def _portable(report: Report) -> Report:
    """A report that any process can take: values of the harness's own types become JSON values."""
    from dataclasses import replace

    tree = report.as_json()
    return replace(report, expected=tree.get("expected"), got=tree.get("got"))


@lru_cache(maxsize=4)
def _source(suite: Suite) -> Source:
    return open_source(journal=suite.journal, lake=suite.lake, tenant=suite.tenant)


def load_agent(name: str, journal_object: str | None) -> tuple[Callable[..., Any], Journal]:
    """Import `module:function` and the one `Journal` beside it. Raises `Misuse` in one line."""
    if name.startswith("__main__:"):
        raise Misuse(f"agent {name!r} cannot be imported; name it with --agent module:function")
    try:
        module, agent = imported(name, "agent")
    except UserError as error:
        raise Misuse(str(error)) from error
    return agent, _journal_in(module, journal_object)


def _journal_in(module: Any, name: str | None) -> Journal:
    """The one `Journal` of a module, or what its `journal_for_replay()` gives; `name` chooses among several."""
    from ..journal import Journal
    from .toolbox import Toolbox

    if name is not None:
        found = [getattr(module, name, None)]
    else:
        found = list({id(one): one for one in vars(module).values() if isinstance(one, Journal)}.values())
        found = found or [getattr(module, "journal_for_replay", None)]
    made: Any = found[0]() if callable(found[0]) else found[0]
    if len(found) != 1 or not isinstance(made, Journal | Toolbox):
        raise Misuse(
            f"module {module.__name__} has no one Journal object: name it with --journal-object, or define "
            "journal_for_replay() there"
        )
    return cast("Journal", made)


def report_from(tree: dict[str, Any]) -> Report:
    """Return the report that `Report.as_json` wrote."""
    changes = tuple(msgspec.convert(change, Change) for change in tree.get("diff", ()))
    kept = {name: value for name, value in tree.items() if name not in ("id", "diff", "notes")}
    return Report(trajectory_id=tree["id"], diff=changes, notes=tuple(tree.get("notes", ())), **kept)


def _refused(trajectory_id: str, cause: str) -> Report:
    return Report(verdict="refused", cause=" ".join(cause.split()), trajectory_id=trajectory_id)


@dataclass
class Summary:
    """Counts of a suite, and where its differences stand."""

    counts: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    events: int = 0

    def add(self, report: Report) -> None:
        """Count one report."""
        self.counts[report.verdict] += 1
        self.events += report.events
        if report.verdict == "differs":
            self.places[f"{report.cause}: {report.component}"] += 1
        elif report.verdict == "refused":
            self.refusals[report.cause] += 1

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        counted = {verdict: self.counts[verdict] for verdict in ("same", "differs", "refused")}
        return counted | {
            "events": self.events, "differences": dict(self.places), "refusals": dict(self.refusals),
            "not_shown": NOT_SHOWN,
        }  # fmt: skip

    def text(self) -> str:
        """Return the summary for people."""
        counted = ", ".join(f"{self.counts[verdict]} {verdict}" for verdict in ("same", "differs", "refused"))
        lines = [f"{counted} ({self.events} events)"]
        lines += [f"  {count} x {place}" for place, count in self.places.most_common(10)]
        lines += [f"  {count} x refused: {why}" for why, count in self.refusals.most_common(5)]
        return "\n".join([*lines, NOT_SHOWN])
