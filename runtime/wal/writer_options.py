"""Options of a writer: values only, bounded, with safe defaults."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class WriterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a writer batches, queues and cuts segments. None of it changes what `append` promises.

    commit_delay_max_ms     wait so long for company before a barrier; 0 (the default) means natural batching:
                            whatever arrives during one barrier is the next batch
    batch_events_max        events in one barrier
    batch_size_max_bytes    bytes in one barrier (one append may exceed it; it is never split)
    queue_events_max        events waiting for the disk before callers have to wait
    queue_size_max_bytes    bytes waiting for the disk before callers have to wait
    lazy_delay_max_ms       how long events that nobody waits for may stay in memory
    segment_size_min_bytes  first segment; each next one doubles up to segment_size_max_bytes
    segment_age_max_s       seal a segment so long after its first frame (None: when full, or at close)
    """

    commit_delay_max_ms: float = 0.0
    batch_events_max: int = 4096
    batch_size_max_bytes: int = MIB
    queue_events_max: int = 65_536
    queue_size_max_bytes: int = 64 * MIB
    lazy_delay_max_ms: float = 50.0
    segment_size_min_bytes: int = MIB
    segment_size_max_bytes: int = 64 * MIB
    segment_age_max_s: float | None = None

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "commit_delay_max_ms": (0, 1000),
            "batch_events_max": (1, 1_000_000),
            "batch_size_max_bytes": (1, 256 * MIB),
            "queue_events_max": (1, 10_000_000),
            "queue_size_max_bytes": (1, 4096 * MIB),
            "lazy_delay_max_ms": (0, 1000),
            "segment_size_min_bytes": (8192, 1024 * MIB),
            "segment_size_max_bytes": (8192, 1024 * MIB),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}={value}: must be {low:g} to {high:g}")
        if self.segment_size_max_bytes < self.segment_size_min_bytes:
            raise ValueError("segment_size_max_bytes is smaller than segment_size_min_bytes")
        if self.segment_age_max_s is not None and not self.segment_age_max_s > 0:
            raise ValueError(f"segment_age_max_s={self.segment_age_max_s}: must be positive, or None for no limit")
