"""How often to checkpoint, and what it costs: the formulas, pure. Times in seconds.

`pause_s` (delta) is how long a checkpoint stops the work, `mtbf_s` (M) the mean time between failures, `restart_s` (R)
how long a recovery takes. Young (1974) balances pauses against lost work to the first order; Daly (2006) to a higher
one. The formula that the document prints as Daly's (its equation 6) is neither: it adds R, which cancels out of the
optimum, and an exponent of its own. Both are here, so that the difference can be shown; decisions use `daly_s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

DEFAULT_MTBF_S: Final = 4 * 3600.0
"""Mean time between failures assumed where nobody said: the document's example."""
BAND: Final = (0.5, 2.0)
"""The curve is flat: any interval within half to double the best costs little more."""


def young_s(pause_s: float, mtbf_s: float) -> float:
    """Young's interval between checkpoints, sqrt(2 delta M)."""
    _check(pause_s, mtbf_s)
    return sqrt(2 * pause_s * mtbf_s)


def daly_s(pause_s: float, mtbf_s: float) -> float:
    """Daly's (2006) interval: sqrt(2 delta M) (1 + 1/3 sqrt(delta/2M) + 1/9 delta/2M) - delta; M from delta = 2M on.

    The time of a restart does not enter: it is paid per failure, whatever the interval.
    """
    _check(pause_s, mtbf_s)
    if pause_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = pause_s / (2 * mtbf_s)
    return sqrt(2 * pause_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - pause_s


def equation_6_s(pause_s: float, mtbf_s: float, restart_s: float = 0.0) -> float:
    """What the document prints as Daly's formula; kept to be compared, never used."""
    _check(pause_s, mtbf_s)
    return sqrt(2 * pause_s * (mtbf_s + restart_s)) + pause_s * (sqrt(2 * pause_s / mtbf_s) / 3 - 1)


def overhead(interval_s: float, pause_s: float, mtbf_s: float) -> float:
    """The share of the time spent on pauses and on work that failures take: delta/T + T/2M."""
    _check(pause_s, mtbf_s)
    return pause_s / interval_s + interval_s / (2 * mtbf_s) if interval_s > 0 else inf


def whole_turns(interval_s: float, turn_s: float) -> int:
    """The interval in whole turns, at least one: a checkpoint stands between turns."""
    if not turn_s > 0:
        return 1
    return max(1, round(interval_s / turn_s))


def turns_between(pause_s: float, mtbf_s: float, turn_s: float) -> int:
    """Turns from one checkpoint to the next, by Daly's formula and what was measured."""
    return whole_turns(daly_s(max(pause_s, 1e-6), mtbf_s), turn_s)


@dataclass(frozen=True, slots=True)
class CrashPrice:
    """What a crash costs on average: half an interval of turns done again, and one cold prefill."""

    turns: float
    seconds: float
    redone_cost: float
    prefill_cost: float

    @property
    def cost(self) -> float:
        return self.redone_cost + self.prefill_cost


def crash_price(interval_turns: int, turn_s: float, turn_cost: float, prefill_cost: float) -> CrashPrice:
    """The price of one crash when every `interval_turns` turns are checkpointed, in the unit of the given costs."""
    lost = interval_turns / 2
    return CrashPrice(lost, lost * turn_s, lost * turn_cost, prefill_cost)


@dataclass(frozen=True, slots=True)
class Amplification:
    """Bytes written by `count` checkpoints, and how many times the new bytes that is."""

    written_bytes: float
    new_bytes: float

    @property
    def factor(self) -> float:
        return self.written_bytes / self.new_bytes


def full_snapshots(count: int, new_bytes_each: float) -> Amplification:
    """Full snapshots of a state that grows by `new_bytes_each` from one to the next: (count + 1) / 2 times the new."""
    return Amplification(new_bytes_each * count * (count + 1) / 2, new_bytes_each * count)


@dataclass(frozen=True, slots=True)
class Commit:
    """Group commit at a steady load. Times in ms.

    `wait_ms` is what one caller waits: its share of the window, then the whole write and the whole barrier, however
    many share them. `device_ms` is what the device spends per event: only that is divided by the batch.
    """

    batch_events: float
    wait_ms: float
    device_ms: float


def group_commit(
    arrivals_per_s: float, write_ms: float, sync_ms: float, *, window_ms: float = 0.0, batch_events_max: int = 64
) -> Commit:  # fmt: skip
    """The model of group commit, with a window or without one.

    With a window: batches of min(max, arrivals in it), at least one. A caller in a full window waits half of it on
    average, a lone one all of it. Without: whatever arrives during one barrier is the next batch, and a caller that
    arrives during a barrier waits for half of that one, then for its own.
    """
    barrier_ms = write_ms + sync_ms
    span_ms = window_ms if window_ms > 0 else barrier_ms
    arrived = arrivals_per_s * span_ms / 1000
    batch = min(float(batch_events_max), max(1.0, arrived))
    if window_ms > 0:
        queued_ms = window_ms / 2 if arrived > 1 else window_ms
    else:
        busy = min(1.0, arrivals_per_s * barrier_ms / 1000 / batch)
        queued_ms = busy * barrier_ms / 2
    return Commit(batch, queued_ms + barrier_ms, barrier_ms / batch)


def _check(pause_s: float, mtbf_s: float) -> None:
    if not (0 < pause_s < inf and 0 < mtbf_s < inf):
        raise ValueError(f"pause {pause_s} s and time between failures {mtbf_s} s must both be above 0")
