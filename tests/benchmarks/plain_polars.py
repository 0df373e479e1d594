"""The other side of the pipeline bench: the same segments to the same Parquet with plain numpy and Polars, at once.

All segments are decoded, concatenated, deduplicated on (tenant, trajectory, number, token, hash), sorted and written
as zstd-3 Parquet, one file per tenant, day and model. No staging, no canonical history, no statistics for a log, no
sync, no commit. `python -m tests.benchmarks.plain_polars LANDING OUT` prints the seconds and the rows.
"""

from __future__ import annotations

import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.frame import HEADER_FIELDS
from trajlake.schemas.events import NAME_OF_CODE

HEADER = np.dtype(
    {
        "names": [name for name, _, _ in HEADER_FIELDS],
        "formats": [kind.replace("S", "V") for _, kind, _ in HEADER_FIELDS],
        "offsets": [offset for _, _, offset in HEADER_FIELDS],
        "itemsize": 128,
    }
)


def decode(path: Path) -> pl.DataFrame:
    """Return the events of one segment with the columns of the table."""
    columns = scan_columns(path.read_bytes(), str(path))
    words = np.frombuffer(columns.data[: columns.data_size], "<u8")
    starts = np.frombuffer(columns.offsets, "<u8").astype(np.int64)
    heads = words[(starts // 8)[:, None] + np.arange(16)].view(HEADER)[:, 0]
    n = len(starts)
    bounds = np.empty(3 * n + 1, np.int64)
    bounds[0:-1:3], bounds[1::3] = starts, starts + 128
    bounds[2::3], bounds[-1] = starts + 128 + heads["payload_length"], columns.data_size
    texts = pa.LargeStringArray.from_buffers(3 * n, pa.py_buffer(bounds), pa.py_buffer(columns.data))
    payload = texts.take(pa.array(np.arange(n) * 3 + 1))
    salts = [digest.hex() for digest in np.ascontiguousarray(heads["salt"]).tolist()]
    sealed = [
        sha256(f"{salt}\n".encode() + text.encode()).hexdigest()
        for salt, text in zip(salts, payload.to_pylist(), strict=True)
    ]
    owners = np.frombuffer(columns.ordinals, "<u4")
    infos = pl.DataFrame(
        [(i.tenant, i.trajectory_id, i.started_on, f"{i.model}@{i.model_version}") for i in columns.trajectories],
        schema=["tenant", "trajectory_id", "started_on", "model"],
        orient="row",
    )
    return infos[owners].with_columns(
        pl.Series("sequence_number", np.ascontiguousarray(heads["sequence_number"])),
        pl.Series("event_type", np.ascontiguousarray(heads["type_code"])).replace_strict(NAME_OF_CODE),
        pl.Series("schema_version", heads["schema_version"].astype(np.int32)),
        pl.Series("fencing_token", np.ascontiguousarray(heads["fencing_token"])),
        pl.Series("turn", np.ascontiguousarray(heads["turn"])),
        pl.Series("recorded_at", np.ascontiguousarray(heads["recorded_at"])).cast(pl.Datetime("us", "UTC")),
        pl.Series("payload", pl.from_arrow(payload)),
        pl.Series("salt", salts),
        pl.Series("commitment", sealed),
        pl.Series("cryptographic_hash", [d.hex() for d in np.ascontiguousarray(heads["hash"]).tolist()]),
        pl.lit(columns.writer).alias("writer"),
        pl.Series("lsn", np.ascontiguousarray(heads["lsn"])),
    )


def convert(landing: Path, out: Path) -> int:
    """Do the whole job; return the rows written."""
    frames = [decode(path) for path in sorted(landing.glob("writers/*/*.seg"))]
    rows = (
        pl.concat(frames)
        .unique(["tenant", "trajectory_id", "sequence_number", "fencing_token", "cryptographic_hash"], keep="any")
        .sort("tenant", "trajectory_id", "sequence_number")
    )
    for key, part in rows.partition_by(["tenant", "started_on", "model"], as_dict=True, include_key=False).items():
        folder = out.joinpath(*(str(value) for value in key))
        folder.mkdir(parents=True)
        part.write_parquet(folder / "part.parquet", compression="zstd", compression_level=3, row_group_size=65_536)
    return len(rows)


if __name__ == "__main__":
    begun = time.perf_counter()
    count = convert(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{time.perf_counter() - begun:.3f} {count}\n")
