"""Another side of the pipeline bench: DuckDB reads the equivalent JSONL, drops duplicates, sorts, writes Parquet.

`python -m tests.benchmarks.plain_duckdb make LANDING` writes `LANDING.jsonl` once; `… LANDING OUT` does the work.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb

from tests.benchmarks.plain_polars import decode
from trajlake.pipelines.sql_text import literal

COLUMNS = """{tenant: varchar, trajectory_id: varchar, started_on: date, model: varchar, sequence_number: bigint,
    event_type: varchar, schema_version: integer, fencing_token: bigint, turn: integer, recorded_at: timestamp,
    payload: varchar, salt: varchar, commitment: varchar, cryptographic_hash: varchar, writer: varchar, lsn: bigint}"""


def jsonl(landing: Path) -> Path:
    return landing.with_suffix(".jsonl")


def make(landing: Path) -> None:
    """Write every landed event, copies too, as one line of JSON."""
    with jsonl(landing).open("wb") as file:
        for path in sorted(landing.glob("writers/*/*.seg")):
            rows = decode(path).with_columns(writer="writer")
            file.write(rows.write_ndjson().encode())


def convert(landing: Path, out: Path) -> int:
    """Do the whole job; return the rows written."""
    connection = duckdb.connect()
    connection.execute("set preserve_insertion_order = false")
    (count,) = connection.execute(f"""
        copy (
            select distinct on (tenant, trajectory_id, sequence_number, fencing_token, cryptographic_hash) *
            from read_json({literal(str(jsonl(landing)))}, format = 'newline_delimited', columns = {COLUMNS})
            order by tenant, trajectory_id, sequence_number
        ) to {literal(str(out))}
        (format parquet, compression zstd, compression_level 3, partition_by (tenant, started_on, model))
    """).fetchone() or (0,)
    return int(count)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        begun = time.perf_counter()
        count = convert(Path(sys.argv[1]), Path(sys.argv[2]))
        sys.stdout.write(f"{time.perf_counter() - begun:.3f} {count}\n")
