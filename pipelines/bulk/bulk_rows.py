"""The writing half of a bulk import: events of fresh trajectories in, data files of every table out, batch by batch.

A batch holds whole trajectories that the lake has never seen, so that every row counts and every derived row follows
from the batch alone: the same functions make them as in a compaction (`canonicalize`, `derive`). Each batch becomes one
row group of each table's open file, so that memory is bounded by a batch and not by what is imported.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from trajlake.ingest.parcels import Parcel
from trajlake.pipelines.compaction.decode import hex_column
from trajlake.pipelines.compaction.run_plan import NO_WRITER
from trajlake.pipelines.derived.canonicalize import CANONICAL, canonicalize
from trajlake.pipelines.derived.derive import derive
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.grown_files import GrownFiles
from trajlake.pipelines.lakehouse.partitions import model_partition
from trajlake.pipelines.lakehouse.snapshot import FileAdd
from trajlake.schemas.tables import SNAPSHOT_TABLES

BATCH_SIZE_BYTES: Final = 6 * 1024 * 1024
"""Payload bytes of a batch: memory is a small multiple of it."""


class BulkWriter:
    """Writes the files of one run. Not for several threads. Nothing it writes counts before the commit."""

    def __init__(self, lake: str, run: str, partition_by: Sequence[str]) -> None:
        self.events = 0
        self.trajectories: set[tuple[str, str]] = set()
        self.is_void = False
        self._files = {
            name: GrownFiles(table, f"{lake}/{name}", run, partition_by) for name, table in SNAPSHOT_TABLES.items()
        }
        self._batch: list[Parcel] = []

    def add(self, parcel: Parcel) -> None:
        """Take whole trajectories. One that an earlier parcel had makes all of it void: rows would stand twice."""
        named = {place[:2] for place in parcel.places}
        self.is_void |= len(named) < len(parcel.places) or not self.trajectories.isdisjoint(named)
        if self.is_void:
            return
        self.trajectories |= named
        self._batch.append(parcel)
        if sum(len(one.payloads) for one in self._batch) < BATCH_SIZE_BYTES:
            return
        # Rows make no cycles, and the collector would walk a batch's hundred thousand objects again and again.
        gc.disable()
        try:
            self._flush()
        finally:
            gc.enable()

    def close(self) -> dict[str, list[FileAdd]]:
        """Write what is left; return the finished files by table. They are not synced."""
        self._flush()
        return {name: adds for name, files in self._files.items() if (adds := files.close())}

    def _flush(self) -> None:
        batch = Parcel.joined(self._batch)
        self._batch.clear()
        if not batch.types:
            return
        self.events += len(batch.types)
        judged = canonicalize(frame_of(batch))
        if judged.duplicates or (judged.rows["verdict"] != CANONICAL).any():
            raise AssertionError("bulk import: a source gave a trajectory with gaps or copies; nothing was committed")
        self._files["events"].add(judged.rows)
        for table, rows in derive(judged.rows, judged, judged.rows.clear()).items():
            self._files[table].add(rows)
        del batch, judged, rows
        pa.default_memory_pool().release_unused()  # also what the heap has of it: what is left of batches adds up


def frame_of(parcel: Parcel) -> pl.DataFrame:
    """Return a parcel with the columns of `events` and `origin`, as `canonicalize` takes them."""
    kinds = polars_schema(SNAPSHOT_TABLES["events"])
    names = ("tenant", "trajectory_id", "started_on", "model")
    places = pl.DataFrame(
        [
            (tenant, name, dt.date.fromisoformat(started_on), model_partition(model, model_version))
            for tenant, name, started_on, model, model_version in parcel.places
        ],
        schema={name: kinds[name] for name in names},
        orient="row",
    )
    owners = places[np.frombuffer(parcel.owners, np.int64)]
    integers = {
        "sequence_number": parcel.numbers,
        "schema_version": parcel.versions,
        "fencing_token": parcel.tokens,
        "turn": parcel.turns,
        "recorded_at": parcel.times,
    }
    return pl.DataFrame(
        {
            **{name: np.frombuffer(values, np.int64) for name, values in integers.items()},
            "event_type": pl.Series(parcel.types, dtype=pl.String),
            "payload": _texts(parcel),
            "salt": hex_column(np.frombuffer(parcel.salts, "V16")),
            "commitment": hex_column(np.frombuffer(parcel.commitments, "V32")),
            "cryptographic_hash": hex_column(np.frombuffer(parcel.hashes, "V32")),
        }
    ).with_columns(
        *(pl.col(name).cast(kinds[name]) for name in (*integers, "payload")),
        *(owners[name] for name in names),
        pl.lit(NO_WRITER).alias("writer"),
        pl.lit(-1, pl.Int64).alias("lsn"),
        pl.lit(2, pl.UInt8).alias("origin"),
    )


def _texts(parcel: Parcel) -> pl.Series:
    """Return the payloads as a column that stands on the parcel's own bytes."""
    offsets = np.concatenate(([0], np.cumsum(np.frombuffer(parcel.sizes, np.int64)))).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(parcel.payloads)]
    joined = pa.Array.from_buffers(pa.large_binary(), len(parcel.sizes), buffers)
    return pl.Series(values=pl.from_arrow(joined))
