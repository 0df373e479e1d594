"""The decisions of the commit protocol, each a pure function: the product asks them, and the model checks them.

Nothing here reads a disk. `tests/model` explores every order of steps and crashes of launchers, maintenance, erasure,
retention, vacuum and pins with exactly these functions, and shows for each rule that the lake breaks without it.
Source: design/lake.md, *Snapshot*, *Maintenance*, *Retention, holds, erasure, pins*.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

HoldStatus = Literal["confirm", "late"]
Verdict = Literal["applied", "refused"]


def is_half_done(events_at: int, newest: int) -> bool:
    """Tell whether a run is in `events` (its txn) without its snapshot: it is finished before anything else."""
    return events_at > newest


def may_build_on(events_at: int, snapshot: int) -> bool:
    """Tell whether a run may list files of `events` at txn `events_at` and build on `snapshot`: only at that run."""
    return events_at == snapshot


def must_follow(table_at: int, run: int) -> bool:
    """Tell whether a table at txn `table_at` still lacks run `run`.

    At that run or higher it is skipped: a slow finisher must not commit an old run again.
    """
    return table_at < run


def has_won(winner: str | None, mine: str) -> bool:
    """Tell whether the run named by the commit with this txn is mine; what the commit call raised says nothing."""
    return winner == mine


def may_remove(
    run: str, *, snapshots: Collection[int], is_named: bool, is_pinned: bool, pending_runs: Collection[str]
) -> bool:
    """Tell whether vacuum may remove a file that run `run` (`<number>-<random>`) wrote.

    Only once snapshot `number` exists, so that the run is decided, and then only what no kept snapshot, no pin and no
    pending erasure's run names. `snapshots` are all that were ever put, expired ones included.
    """
    return run_number(run) in snapshots and not is_named and not is_pinned and run not in pending_runs


def run_number(run: str) -> int:
    """Return the snapshot that a run of this name makes, or -1 for a text that names no run."""
    number = run.split("-", 1)[0]
    return int(number) if number.isdecimal() else -1


class Kept(NamedTuple):
    """Which snapshots stay readable, and which are to be marked expired now."""

    kept: list[int]
    expire: list[int]


def keep_snapshots(ages_s: dict[int, float], kept_for_s: float) -> Kept:
    """Split the readable snapshots (number -> age) into those kept and those that expire.

    The newest always stays; a younger one than `kept_for_s` too.
    """
    newest = max(ages_s)
    kept = sorted(n for n, age in ages_s.items() if n == newest or age < kept_for_s)
    return Kept(kept, sorted(set(ages_s) - set(kept)))


def log_may_go_below(versions: Collection[int], checkpoints: Collection[int]) -> int:
    """Return the Delta version below which a table's log may go, given the versions that kept snapshots name.

    It is the newest checkpoint from which every one of them can still be read; 0 where there is none.
    """
    oldest = min(versions, default=0)
    return max((version for version in checkpoints if version <= oldest), default=0)


def pin_counts(*, is_expired: bool, snapshot_epoch: int, ledger_epoch: int) -> bool:
    """Tell whether a pin counts, asked after its put: its snapshot is readable and lacks no erasure of the ledger."""
    return not is_expired and ledger_epoch <= snapshot_epoch


def hold_status(*, is_gone: bool) -> HoldStatus:
    """Return what a hold is after the run that followed its row: late if what it holds was gone by then."""
    return "late" if is_gone else "confirm"


def erasures_to_decide(snapshot_epoch: int, ledger_epoch: int) -> range:
    """Return the epochs that a run on a snapshot must decide, both read in this order: snapshot, then ledger."""
    return range(snapshot_epoch + 1, ledger_epoch + 1)


def decide_erasure(*, is_held: bool) -> Verdict:
    """Return what a run does with an erasure; holds are read after the run's snapshot."""
    return "refused" if is_held else "applied"


def may_expire(*, is_held: bool, is_open: bool, age_s: float, kept_for_s: float) -> bool:
    """Tell whether retention may take something: its trajectories have ended, are old enough and not held."""
    return not is_held and not is_open and age_s >= kept_for_s


def is_complete(*, writers: Collection[str], warm: Collection[str], landing: Collection[str], pins: Collection[str],
                files: Collection[str]) -> bool:  # fmt: skip
    """Tell whether an erasure is complete: no known place holds the text any more; each argument lists what does."""
    return not (writers or warm or landing or pins or files)
