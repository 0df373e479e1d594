"""A sealed segment as Arrow, by the recipe of `runtime/wal/columns.py`: header, payload, no loop over frames."""

from __future__ import annotations

import mmap

import numpy as np
import pyarrow as pa

from trajlake.runtime.wal.columns import SegmentColumns, scan_columns
from trajlake.runtime.wal.frame import HEADER_FIELDS, HEADER_SIZE

HEADER_DTYPE = np.dtype({
    "names": [name for name, _, _ in HEADER_FIELDS],
    "formats": [kind.replace("S", "V") for _, kind, _ in HEADER_FIELDS],
    "offsets": [offset for _, _, offset in HEADER_FIELDS],
    "itemsize": HEADER_SIZE,
})  # fmt: skip
COLUMNS = (
    "lsn", "type_code", "schema_version", "sequence_number", "fencing_token", "recorded_at", "turn", "salt", "hash",
)  # fmt: skip
INLINE_MAX = 12


def read_table(path: str) -> pa.Table:
    """Map the file, check its whole checksum, and return one row per event."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return table_of(scan_columns(memoryview(data), path))


def table_of(segment: SegmentColumns) -> pa.Table:
    """Return header columns, trajectory (dictionary) and payload (views into the file's own bytes)."""
    starts = np.frombuffer(segment.offsets, "<u8").astype(np.int64)
    words = np.frombuffer(segment.data[: segment.data_size], "<u8")
    heads = words[(starts // 8)[:, None] + np.arange(HEADER_SIZE // 8)].view(HEADER_DTYPE)[:, 0]
    columns = {name: _column(heads[name]) for name in COLUMNS}
    columns["trajectory_id"] = pa.DictionaryArray.from_arrays(
        np.frombuffer(segment.ordinals, "<u4"), [one.trajectory_id for one in segment.trajectories]
    )
    columns["payload"] = _views(segment, starts + HEADER_SIZE, heads["payload_length"].astype(np.int32))
    return pa.table(columns)


def _column(field: np.ndarray) -> pa.Array:
    values = np.ascontiguousarray(field)
    if values.dtype.kind == "V":
        kind = pa.binary(values.dtype.itemsize)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.view(np.uint8))])
    return pa.array(values)


def _views(segment: SegmentColumns, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """An Arrow binary-view array over the segment: length, first four bytes, buffer 0, offset (short ones inline)."""
    source = np.frombuffer(segment.data, np.uint8)
    views = np.zeros((len(starts), 4), "<i4")
    views[:, 0] = lengths
    views[:, 1] = np.frombuffer(segment.data, "<i4", count=len(segment.data) // 4)[starts // 4]
    views[:, 3] = starts
    short = np.flatnonzero(lengths <= INLINE_MAX)
    if len(short):
        heads = source[starts[short][:, None] + np.arange(INLINE_MAX)]
        heads[np.arange(INLINE_MAX) >= lengths[short][:, None]] = 0
        views[short, 1:] = heads.view("<i4")
    return pa.Array.from_buffers(pa.binary_view(), len(starts), [None, pa.py_buffer(views), pa.py_buffer(segment.data)])
