"""Counts and histograms of a writer, cheap enough to be always on."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

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
    """What a writer measures about itself."""

    def __init__(self) -> None:
        self.batch_events = Histogram(BOUNDS_EVENTS)
        self.barrier_s = Histogram(BOUNDS_S)
        self.wake_s = Histogram(BOUNDS_S)

    def batch(self, events: int, barrier_s: float, wake_s: float) -> None:
        """Note one batch: its events, the time from taking it to durable, the time to wake its callers."""
        self.batch_events.add(events)
        self.barrier_s.add(barrier_s)
        self.wake_s.add(wake_s)
