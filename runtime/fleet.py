"""The size of a fleet from measured rates: events, bytes, cores, memory, objects, requests, money. Arithmetic only.

Every rate comes in by argument (`fleet_rates.RATES`, or what was measured elsewhere); a figure is in the unit its name
says. Averages are over a day; `peak` multiplies where something must keep up at any moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .fleet_rates import RATES

DAY_S: Final = 86_400
MONTH_DAYS: Final = 30
PARTITIONED_TABLES: Final = 4
"""events, trajectories, model_calls, tool_calls: a file each per partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is asked for. Days say how long each tier keeps what it is given."""

    trajectories: int = 50_000
    turns: int = 500
    peak: float = 3.0
    tenants: int = 20
    models: int = 5
    runs_per_day: int = 24
    hot_days: float = 2.0
    landing_days: float = 7.0
    warm_days: float = 7.0
    cold_days: float = 365.0
    audits_per_day: float = 1.0
    scans_per_day: float = 10.0
    replays_share: float = 0.01


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: what, how much, in which unit, by which sum."""

    name: str
    value: float
    unit: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that ends: `load` of `limit` at this size; at a load above 1 it has ended."""

    name: str
    load: float
    limit: float
    unit: str
    then: str

    @property
    def used(self) -> float:
        return self.load / self.limit


@dataclass(frozen=True, slots=True)
class Fleet:
    """A sized fleet: sections of lines, and the limits, nearest first."""

    sections: dict[str, list[Line]]
    limits: list[Limit]


def rates_of(overrides: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return name -> value, measured ones replaced by `overrides`; raises `KeyError` for a name that is none."""
    values = {name: rate.value for name, rate in RATES.items()}
    for name, value in (overrides or {}).items():
        if name not in values:
            raise KeyError(name)
        values[name] = float(value)
    return values


def size(work: Workload, rates: Mapping[str, float]) -> Fleet:
    """Size a fleet for `work`."""
    r = dict(rates)
    day = work.trajectories * (work.turns * r["events_per_turn"] + r["events_per_trajectory"])
    blobs = day * r["blobs_per_1000_events"] / 1000
    journal = day * r["frame_bytes"] + blobs * r["blob_bytes"]
    lake = journal * r["lake_share"]
    flow = _flow(work, r, day, blobs, journal, lake)
    kept = _kept(work, r, day, journal, lake)
    cores, memory = _cores(work, r, day, journal, lake)
    objects = _objects(work, r, day, blobs, lake)
    sections = {"a day": flow, "cores": cores, "memory": memory, "kept": kept, "objects": objects}
    sections["USD a month"] = _money(r, sections)
    return Fleet(sections, sorted(_limits(work, r, day, sections), key=lambda limit: -limit.used))


def assumed(work: Workload, given: Mapping[str, float] | None = None) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the rates that nobody measured or gave, and (section or "limits", name) of figures that rest on one."""
    names = [name for name, rate in RATES.items() if rate.source.startswith("assumed") and name not in (given or {})]
    rates = rates_of(given)
    as_told = _figures(size(work, rates))
    rest: set[tuple[str, str]] = set()
    for name in names:
        otherwise = _figures(size(work, rates | {name: rates[name] * 2}))
        rest |= {place for place, value in as_told.items() if otherwise[place] != value}
    return names, rest


def _figures(fleet: Fleet) -> dict[tuple[str, str], float]:
    lines = {(section, line.name): line.value for section, found in fleet.sections.items() for line in found}
    return lines | {("limits", limit.name): limit.used for limit in fleet.limits}


def _flow(work: Workload, r: dict[str, float], day: float, blobs: float, journal: float, lake: float) -> list[Line]:
    agents = work.trajectories * work.turns * r["turn_s"] / DAY_S
    return [
        Line("events", day / 1e6, "million", "trajectories x (turns x events_per_turn + events_per_trajectory)"),
        Line("events/s, mean", day / DAY_S, "1/s"),
        Line("events/s, peak", day / DAY_S * work.peak, "1/s", f"{work.peak:g} times the mean"),
        Line("agents at work, mean", agents, "", "trajectories x turns x turn_s"),
        Line("journal", journal / 1e9, "GB", "frames and blobs"),
        Line("blobs", blobs, "objects", "before deduplication"),
        Line("lake", lake / 1e9, "GB", "journal x lake_share"),
    ]


def _cores(
    work: Workload, r: dict[str, float], day: float, journal: float, lake: float
) -> tuple[list[Line], list[Line]]:
    peak = day / DAY_S * work.peak
    compact = (day / r["compact_events_s"] + work.runs_per_day * r["compact_run_s"]) / DAY_S
    read = day * r["frame_bytes"] * work.scans_per_day / r["scan_bytes_s"] / DAY_S
    cores = [
        Line("append", peak / r["append_events_s"], "cores", "at peak; beside the agents, which are not counted"),
        Line("ship", journal * work.peak / r["ship_bytes_s"] / DAY_S, "cores", "at peak"),
        Line("warm tier", 2 * peak / r["warm_events_s"], "cores", "at peak; measured on two cores"),
        Line("compact", compact, "cores", "mean: a batch"),
        Line("maintain", lake / r["maintain_bytes_s"] / DAY_S, "cores", "mean: every byte merged once"),
        Line("audit", day * work.audits_per_day / r["audit_events_s"] / DAY_S, "cores", "mean: each day's events"),
        Line("queries", read, "cores", "mean: payload scans of a day's events"),
        Line("replay", day * work.replays_share / r["replay_events_s"] / DAY_S, "cores", "mean: the share replayed"),
    ]
    warm_gib = day * r["warm_bytes"] * work.warm_days * r["warm_memory_share"] / 2**30
    workers = max(1.0, compact * 4)
    memory = [
        Line("compact", workers * r["compact_gib"], "GiB", f"{workers:.0f} workers: a night's work in six hours"),
        Line("warm tier", warm_gib, "GiB", "warm_memory_share of its tables"),
    ]
    return cores, memory


def _kept(work: Workload, r: dict[str, float], day: float, journal: float, lake: float) -> list[Line]:
    return [
        Line("hot disks", journal * work.hot_days / 1e9, "GB", f"{work.hot_days:g} days"),
        Line("landing", journal * work.landing_days / 1e9, "GB", f"{work.landing_days:g} days"),
        Line("warm tier", day * r["warm_bytes"] * work.warm_days / 1e9, "GB", f"{work.warm_days:g} days"),
        Line("lake", lake * work.cold_days / 1e9, "GB", f"{work.cold_days:g} days"),
    ]


def _objects(
    work: Workload, r: dict[str, float], day: float, blobs: float, lake: float
) -> list[Line]:  # fmt: skip
    segments = day * r["frame_bytes"] / r["segment_bytes"]
    written = work.runs_per_day * r["files_per_run"] * max(1.0, work.tenants * work.models / 20)
    merged = max(PARTITIONED_TABLES * work.tenants * work.models, lake / r["data_file_bytes"])
    commits = work.runs_per_day * r["commits_per_run"]
    puts = segments + 2 * blobs + written + merged + commits
    gets = segments + blobs + 2 * written + commits
    return [
        Line("segments", segments, "a day"),
        Line("content objects", blobs, "a day", "each blob once in landing, once in the lake"),
        Line("data files written", written, "a day", "by runs, before maintenance"),
        Line("data files kept", merged, "a day", "partitions, or data_file_bytes"),
        Line("puts", puts, "a day"),
        Line("gets", gets, "a day", "by compaction and maintenance; queries come on top"),
    ]


def _money(r: dict[str, float], sections: Mapping[str, list[Line]]) -> list[Line]:
    def of(section: str, name: str) -> float:
        return next(line.value for line in sections[section] if line.name == name)

    cores = sum(line.value for line in sections["cores"])
    gib = sum(line.value for line in sections["memory"])
    hours = 24 * MONTH_DAYS
    lines = [
        Line("cores", cores * hours * r["usd_core_hour"], "USD", "agents and models not counted"),
        Line("memory", gib * hours * r["usd_gib_hour"], "USD"),
        Line("hot disks", of("kept", "hot disks") * r["usd_block_gb_month"], "USD"),
        Line("warm disks", of("kept", "warm tier") * r["usd_block_gb_month"], "USD"),
        Line("object storage", (of("kept", "landing") + of("kept", "lake")) * r["usd_object_gb_month"], "USD"),
        Line(
            "requests", MONTH_DAYS / 1000 * (
                of("objects", "puts") * r["usd_1000_puts"] + of("objects", "gets") * r["usd_1000_gets"]
            ), "USD",
        ),
    ]  # fmt: skip
    return [*lines, Line("sum", sum(line.value for line in lines), "USD")]


def _limits(work: Workload, r: dict[str, float], day: float, sections: Mapping[str, list[Line]]) -> list[Limit]:
    peak = day / DAY_S * work.peak
    puts = next(line.value for line in sections["objects"] if line.name == "puts") / DAY_S * work.peak
    partitions = work.tenants * work.models * work.cold_days
    compact = next(line.value for line in sections["cores"] if line.name == "compact")
    return [
        Limit(
            "live files of one table", max(partitions, work.cold_days / 365), r["files_max"], "files",
            "leave model out of the partitions, or give tenants lakes of their own",
        ),
        Limit(
            "rows of one PostgreSQL", peak, r["warm_events_s"], "1/s", "more cores, or a server for each tenant",
        ),
        Limit(
            "files of the ledger runs", work.runs_per_day * work.cold_days, r["ledger_files_max"], "files",
            "fewer, larger runs",
        ),
        Limit("one journal process", peak, r["append_events_s"], "1/s", "one process more: they share nothing"),
        Limit("one compacting core", compact, 1.0, "cores", "more cores, then workers on a runner"),
        Limit("puts into one bucket", puts, r["puts_s_max"], "1/s", "a prefix per tenant"),
    ]  # fmt: skip
