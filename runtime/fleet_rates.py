"""What `trajlake plan --fleet` reckons with: one rate per line, its unit, and where the number comes from. Pure data.

Measured on the project's reference machine (2 cores, virtio disk, shared with other work, so on the low side) by the
benches named; measure your own with `make bench` and hand them over with `--rates FILE` (TOML: name = number). Prices
are round list prices of large clouds, to be replaced by yours.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Rate(NamedTuple):
    """One number. `source`: the bench or data set that gave it, or `assumed`."""

    value: float
    unit: str
    source: str


RATES: Final[dict[str, Rate]] = {
    # what agents write
    "events_per_turn": Rate(5.0, "events", "one tool call a turn: context, reply, authorization, intent, result"),
    "events_per_trajectory": Rate(6.0, "events", "start, message, checkpoint, end, lease; the demo"),
    "turn_s": Rate(12.0, "s", "assumed; the document's example"),
    "frame_bytes": Rate(1112, "bytes/event", "recorded sessions of every format, segments"),
    "blobs_per_1000_events": Rate(1.43, "blobs", "recorded sessions, sources of imports left out"),
    "blob_bytes": Rate(144_500, "bytes", "recorded sessions, mean"),
    "segment_bytes": Rate(24.5e6, "bytes", "a sealed segment of the default size, as shipped"),
    # hot
    "append_events_s": Rate(65_000, "events/s", "bench journal: 64 asyncio agents of one process, durable"),
    "commit_ms": Rate(0.157, "ms", "bench journal: one agent, p50"),
    "ship_bytes_s": Rate(220e6, "bytes/s/core", "CPU of `trajlake ship`, local landing"),
    # warm
    "warm_events_s": Rate(12_800, "events/s", "bench warm: one server and its loader on two cores"),
    "warm_bytes": Rate(2098, "bytes/event", "PostgreSQL 18, table and indexes, source lines as text"),
    "warm_memory_share": Rate(0.05, "", "assumed: cached part of the warm tables"),
    # cold
    "compact_events_s": Rate(42_000, "events/s/core", "bench pipeline: CPU, all derived tables, prose"),
    "compact_run_s": Rate(1.2, "s", "CPU of a run, whatever it takes in (its files and commits)"),
    "compact_gib": Rate(0.95, "GiB", "bench pipeline: PSS of one process"),
    "maintain_bytes_s": Rate(21e6, "bytes/s/core", "CPU of `trajlake maintain`, compressed bytes"),
    "lake_share": Rate(0.36, "", "bench pipeline: lake bytes per journal byte, recorded sessions"),
    "scan_bytes_s": Rate(0.9e9, "bytes/s/core", "bench query: payload text, uncompressed"),
    "audit_events_s": Rate(97_000, "events/s/core", "bench audit: all controls"),
    "replay_events_s": Rate(22_000, "events/s/core", "bench replay: trivial harness"),
    "data_file_bytes": Rate(128e6, "bytes", "what `trajlake maintain` merges up to"),
    "files_per_run": Rate(55, "files", "a run over 20 partitions of events: files of all tables"),
    "commits_per_run": Rate(14, "objects", "11 tables, run file, snapshot, ledger `runs`"),
    # limits
    "files_max": Rate(50_000, "files", "evidence: a Delta commit takes 200 ms at 50,000 live files"),
    "ledger_files_max": Rate(10_000, "files", "evidence: 50 ms a commit; ledgers are not merged"),
    "puts_s_max": Rate(3500, "1/s", "assumed: what an object store takes per prefix"),
    # prices
    "usd_core_hour": Rate(0.04, "USD", "assumed"),
    "usd_gib_hour": Rate(0.005, "USD", "assumed"),
    "usd_object_gb_month": Rate(0.02, "USD", "assumed; the document's bound"),
    "usd_block_gb_month": Rate(0.08, "USD", "assumed"),
    "usd_1000_puts": Rate(0.005, "USD", "assumed"),
    "usd_1000_gets": Rate(0.0004, "USD", "assumed"),
}
