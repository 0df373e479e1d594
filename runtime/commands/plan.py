"""Verb `plan`: how often to checkpoint, what a crash costs, what is written, and what a caller waits for a commit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajlake.runtime.checkpoints import interval
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.fleet import size_fleet
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, open_view, print_json, settings_of, table

if TYPE_CHECKING:
    from trajlake.schemas.envelope import Event

PAUSE = Annotated[float | None, typer.Option("--pause", metavar="S", help="Pause per checkpoint [0.5, or measured].")]
MTBF = Annotated[float, typer.Option("--mtbf", metavar="S", help="Mean time between failures of a worker.")]
RESTART = Annotated[float, typer.Option("--restart", metavar="S", help="Time of a recovery; only equation 6 uses it.")]
TURN = Annotated[float | None, typer.Option("--turn", metavar="S", help="Seconds per turn [12, or measured].")]
TURN_COST = Annotated[float, typer.Option("--turn-cost", metavar="USD", help="Cost of a warm turn.")]
PREFILL = Annotated[float, typer.Option("--prefill-cost", metavar="USD", help="Cost of one cold prefill.")]
COUNT = Annotated[int, typer.Option("--checkpoints", help="Checkpoints taken, for the bytes written.")]
NEW_BYTES = Annotated[float, typer.Option("--new-kib", metavar="KIB", help="New state per checkpoint.")]
RATE = Annotated[float, typer.Option("--arrivals", metavar="PER_S", help="Events per second that wait for a barrier.")]
WRITE = Annotated[float, typer.Option("--write-ms", help="One vectored write.")]
SYNC = Annotated[float, typer.Option("--sync-ms", help="One barrier.")]
WINDOW = Annotated[float, typer.Option("--window-ms", help="Commit window; 0 is what the journal does.")]
RESTART_S, TURN_USD, PREFILL_USD, NEW_KIB = 60.0, 0.0172, 0.12, 128.0
ARRIVALS_S, WRITE_MS, SYNC_MS = 32_000.0, 0.8, 15.0
"""The document's examples: what stands here was assumed, and is told as such."""
FLEET = Annotated[bool, typer.Option("--fleet", help="Size a fleet instead, from measured rates.")]
SET = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=N", help="With --fleet: another number. Repeat.")]
RATES = Annotated[Path | None, typer.Option("--rates", metavar="FILE", help="With --fleet: your rates, as TOML.")]


def plan(
    trajectory_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Take pause and turn from this trajectory.")
    ] = None,
    pause: PAUSE = None,
    mtbf: MTBF = interval.DEFAULT_MTBF_S,
    restart: RESTART = RESTART_S,
    turn: TURN = None,
    turn_cost: TURN_COST = TURN_USD,
    prefill_cost: PREFILL = PREFILL_USD,
    checkpoints: COUNT = 100,
    new_kib: NEW_BYTES = NEW_KIB,
    arrivals: RATE = ARRIVALS_S,
    write_ms: WRITE = WRITE_MS,
    sync_ms: SYNC = SYNC_MS,
    window_ms: WINDOW = 2.0,
    fleet: FLEET = False,
    numbers: SET = None,
    rates: RATES = None,
    journal: JOURNAL = None,
    tenant: TENANT = None,
    as_json: JSON = False,
) -> None:
    """Plan checkpoints: the interval, its curve, the price of a crash, bytes written, and the wait for a commit."""
    if fleet:
        size_fleet(numbers or [], rates, as_json)
        return
    if numbers or rates:
        raise UserError("plan: --set and --rates go with --fleet")
    measured = _measured(journal, tenant, trajectory_id) if trajectory_id is not None else {}
    pause_s = pause if pause is not None else measured.get("pause_s", 0.5)
    turn_s = turn if turn is not None else measured.get("turn_s", 12.0)
    for name, value in (("--pause", pause_s), ("--mtbf", mtbf), ("--turn", turn_s), ("--sync-ms", sync_ms)):
        if not value > 0:
            raise UserError(f"{name} {value}: must be above 0")
    if checkpoints < 1 or new_kib <= 0 or min(restart, turn_cost, prefill_cost, arrivals, write_ms, window_ms) < 0:
        raise UserError("plan: a count or an amount is below what it can be; see 'trajlake plan --help'")
    given = {
        "pause": pause is not None or "pause_s" in measured, "mtbf": mtbf != interval.DEFAULT_MTBF_S,
        "restart": restart != RESTART_S, "turn": turn is not None or "turn_s" in measured,
        "turn-cost": turn_cost != TURN_USD, "prefill-cost": prefill_cost != PREFILL_USD, "new-kib": new_kib != NEW_KIB,
        "arrivals": arrivals != ARRIVALS_S, "write-ms": write_ms != WRITE_MS, "sync-ms": sync_ms != SYNC_MS,
    }  # fmt: skip
    tree = {
        "measured": measured,
        "assumed": [name for name, known in given.items() if not known],
        "interval": intervals(pause_s, mtbf, restart, turn_s),
        "curve": curve(pause_s, mtbf, turn_s),
        "crash": crashes(pause_s, mtbf, turn_s, turn_cost, prefill_cost),
        "written": written(checkpoints, new_kib * 1024),
        "commit": commits(arrivals, write_ms, sync_ms, window_ms),
    }
    if as_json:
        print_json(tree)
    else:
        _show(tree)


def intervals(pause_s: float, mtbf_s: float, restart_s: float, turn_s: float) -> dict[str, Any]:
    """The three formulas side by side, and the choice in whole turns."""
    daly_s = interval.daly_s(pause_s, mtbf_s)
    turns = interval.whole_turns(daly_s, turn_s)
    return {
        "pause_s": pause_s, "mtbf_s": mtbf_s, "turn_s": turn_s,
        "young_s": interval.young_s(pause_s, mtbf_s), "daly_s": daly_s,
        "equation_6_s": interval.equation_6_s(pause_s, mtbf_s, restart_s), "restart_s": restart_s,
        "turns": turns, "seconds": turns * turn_s, "overhead": interval.overhead(turns * turn_s, pause_s, mtbf_s),
    }  # fmt: skip


def curve(pause_s: float, mtbf_s: float, turn_s: float) -> list[dict[str, Any]]:
    """The overhead at some intervals around the best one; `in_band` is half to double."""
    best_s = interval.young_s(pause_s, mtbf_s)
    best = interval.whole_turns(best_s, turn_s)
    half, double = interval.BAND
    wanted = sorted({1, max(1, best // 4), max(1, round(best * half)), best, round(best * double), best * 4, best * 10})
    return [
        {
            "turns": turns, "seconds": turns * turn_s,
            "overhead": interval.overhead(turns * turn_s, pause_s, mtbf_s),
            "in_band": round(best * half) <= turns <= round(best * double),
        }
        for turns in wanted
    ]  # fmt: skip


def crashes(
    pause_s: float, mtbf_s: float, turn_s: float, turn_cost: float, prefill_cost: float
) -> list[dict[str, Any]]:  # fmt: skip
    """The price of one crash at the best interval and at ten times it."""
    best = interval.turns_between(pause_s, mtbf_s, turn_s)
    rows = []
    for turns in (best, best * 10):
        price = interval.crash_price(turns, turn_s, turn_cost, prefill_cost)
        rows.append(
            {
                "every_turns": turns, "lost_turns": price.turns, "lost_s": price.seconds,
                "redone_usd": price.redone_cost, "prefill_usd": price.prefill_cost, "usd": price.cost,
            }
        )  # fmt: skip
    return rows


def written(count: int, new_bytes: float) -> dict[str, Any]:
    """What full snapshots of a growing state write, beside content-addressed ones."""
    full = interval.full_snapshots(count, new_bytes)
    return {
        "checkpoints": count, "new_bytes": full.new_bytes, "full_bytes": full.written_bytes, "full_factor": full.factor,
        "content_addressed_factor": 1.0,
    }  # fmt: skip


def commits(arrivals: float, write_ms: float, sync_ms: float, window_ms: float) -> list[dict[str, Any]]:
    """The wait of a caller and the device's cost per event, with the window and without."""
    rows = []
    for window in dict.fromkeys((0.0, window_ms)):
        found = interval.group_commit(arrivals, write_ms, sync_ms, window_ms=window)
        rows.append(
            {
                "window_ms": window, "batch_events": found.batch_events, "caller_waits_ms": found.wait_ms,
                "device_ms_per_event": found.device_ms,
            }
        )  # fmt: skip
    return rows


def _measured(journal: str | None, tenant: str | None, trajectory_id: str) -> dict[str, float]:
    """Median pause of its checkpoints, and median seconds between the starts of its turns."""
    wanted = settings_of(journal, tenant).tenant
    found = open_view(journal).trajectory(wanted, trajectory_id)
    if found is None or found.history is None:
        raise UserError(f"no trajectory {trajectory_id!r} of tenant {wanted!r} in this root; check id and --journal")
    return measured_in(found.history.events)


def measured_in(events: list[Event]) -> dict[str, float]:
    """The same of events: no entry where there is nothing to measure."""
    pauses = [event.body.pause_ms for event in events if event.type == "CheckpointSaved" and event.body.pause_ms > 0]
    starts: dict[int, int] = {}
    for event in events:
        if event.turn >= 0:
            starts.setdefault(event.turn, event.recorded_at)
    times = [starts[turn] for turn in sorted(starts)]
    gaps = [(after - before) / 1e6 for before, after in pairwise(times) if after > before]
    return ({"pause_s": median(pauses) / 1000} if pauses else {}) | ({"turn_s": median(gaps)} if gaps else {})


def _show(tree: dict[str, Any]) -> None:
    of = tree["interval"]
    if tree["assumed"]:
        options = ", ".join(f"--{name}" for name in tree["assumed"])
        print(f"assumed, as nobody gave or measured them (the document's examples): {options}\n")
    print(f"pause {of['pause_s']:g} s, mean time between failures {of['mtbf_s']:g} s, turn {of['turn_s']:g} s")
    print(f"  Young (1974)         {of['young_s']:8.2f} s")
    print(f"  Daly (2006)          {of['daly_s']:8.2f} s   used here")
    print(
        f"  document's equation 6{of['equation_6_s']:8.2f} s   with R = {of['restart_s']:g} s; "
        f"{of['equation_6_s'] - of['daly_s']:+.2f} s: R is paid per failure and does not belong in the optimum"
    )
    print(f"checkpoint every {of['turns']} turns ({of['seconds']:g} s): {of['overhead']:.2%} of the time\n")
    table(
        ("turns", "seconds", "overhead", ""),
        [
            (str(row["turns"]), f"{row['seconds']:g}", f"{row['overhead']:.2%}", "half to double" * row["in_band"])
            for row in tree["curve"]
        ],
        empty="no curve",
    )
    print("\na crash costs, on average")
    for row in tree["crash"]:
        print(
            f"  every {row['every_turns']} turns: {row['lost_turns']:g} turns, {row['lost_s']:g} s, "
            f"${row['redone_usd']:.2f}, plus ${row['prefill_usd']:.2f} for one cold prefill"
        )
    bytes_ = tree["written"]
    print(
        f"\n{bytes_['checkpoints']} full snapshots write {bytes_['full_bytes'] / 2**20:,.2f} MiB, "
        f"{bytes_['full_factor']:g} times what is new; content-addressed ones about once"
    )
    for row in tree["commit"]:
        name = f"window {row['window_ms']:g} ms" if row["window_ms"] else "no window"
        print(
            f"group commit, {name}: a caller waits {row['caller_waits_ms']:.1f} ms; the device spends "
            f"{row['device_ms_per_event']:.2f} ms per event ({row['batch_events']:g} share a barrier)"
        )
