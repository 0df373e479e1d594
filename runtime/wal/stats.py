"""Counts and histograms of a writer, cheap enough to be always on."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_S: Final = (
    25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3, 51.2e-3,
    0.1, 0.2, 0.5, 1.0, 5.0,
)  # fmt: skip
"""Upper bounds of the latency buckets, in seconds; one more bucket takes the rest."""
BOUNDS_EVENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Histogram:
    """Counts of values by bucket. One thread writes; readers may see a sample half counted, never a torn number."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.count += 1

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that holds the quantile; 0 without samples, inf beyond the last."""
        wanted = share * self.count
        seen = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return 0.0


class Stats:
    """What a writer measures about itself, one sample a batch. Five stages of a commit, in seconds:

    queue     from the append of the batch's oldest event until the batch is taken
    batch     laying out its bytes, and rotating to another segment when one is full
    write     handing them to the system; next to nothing where one call is write and barrier
    barrier   until the disk says they are durable
    wake      telling all who wait; what the callers' own threads then wait for the interpreter is not in it
    """

    def __init__(self) -> None:
        self.events_per_batch = Histogram(BOUNDS_EVENTS)
        self.stages = {name: Histogram(BOUNDS_S) for name in ("queue", "batch", "write", "barrier", "wake")}
        self._queue, self._batch, self._write, self._barrier, self._wake = self.stages.values()

    def batch(
        self, events: int, *, queue_s: float, batch_s: float, write_s: float, barrier_s: float, wake_s: float
    ) -> None:
        """Note one batch."""
        self.events_per_batch.add(events)
        self._queue.add(queue_s)
        self._batch.add(batch_s)
        self._write.add(write_s)
        self._barrier.add(barrier_s)
        self._wake.add(wake_s)


class WriterStats(NamedTuple):
    """A writer's numbers at one moment; `lines` is their OpenMetrics text, whose names stay stable."""

    writer_id: str
    measured: Stats
    durable_lsn: int
    bytes_written: int
    segments_begun: int
    queue_full_count: int
    failed_over: bool
    space_low: bool

    def lines(self) -> str:
        label = f'writer="{self.writer_id}"'
        out: list[str] = []
        _gauge(out, "trajlake_journal_durable_lsn", label, self.durable_lsn)
        _gauge(out, "trajlake_journal_failed_over", label, int(self.failed_over))
        _gauge(out, "trajlake_journal_space_low", label, int(self.space_low))
        _counter(out, "trajlake_journal_written_bytes", label, self.bytes_written)
        _counter(out, "trajlake_journal_segments", label, self.segments_begun)
        _counter(out, "trajlake_journal_queue_full", label, self.queue_full_count)
        _histogram(out, "trajlake_journal_batch_events", [(label, self.measured.events_per_batch)])
        stages = [(f'{label},stage="{name}"', histogram) for name, histogram in self.measured.stages.items()]
        _histogram(out, "trajlake_journal_stage_seconds", stages)
        return "\n".join([*out, "# EOF", ""])


def _gauge(out: list[str], name: str, label: str, value: float) -> None:
    out += [f"# TYPE {name} gauge", f"{name}{{{label}}} {value}"]


def _counter(out: list[str], name: str, label: str, value: float) -> None:
    out += [f"# TYPE {name} counter", f"{name}_total{{{label}}} {value}"]


def _histogram(out: list[str], name: str, series: list[tuple[str, Histogram]]) -> None:
    out.append(f"# TYPE {name} histogram")
    for label, histogram in series:
        running = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            running += count
            limit = "+Inf" if bound == float("inf") else f"{bound:g}"
            out.append(f'{name}_bucket{{{label},le="{limit}"}} {running}')
        out += [f"{name}_sum{{{label}}} {histogram.sum:g}", f"{name}_count{{{label}}} {running}"]
