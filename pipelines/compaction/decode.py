"""One sealed segment as columns: the header fields by numpy strides, the payloads as views into the file's bytes.

No Python statement runs per frame but the hash of each commitment, which no library here computes in bulk.
The segment's checksum covers every byte before its SEAL, so that single frames need no CRC of their own.
"""

from __future__ import annotations

import datetime as dt
from hashlib import sha256
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from trajlake.pipelines.lakehouse.partitions import model_partition
from trajlake.pipelines.lakehouse.places import read
from trajlake.runtime.wal.columns import SegmentColumns, scan_columns
from trajlake.runtime.wal.frame import HEADER_FIELDS, HEADER_SIZE
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.schemas.events import NAME_OF_CODE
from trajlake.schemas.versions import CURRENT_SCHEMA_VERSION

_HEADER_DTYPE: Final = np.dtype(
    {
        "names": [name for name, _, _ in HEADER_FIELDS],
        "formats": [kind.replace("S", "V") for _, kind, _ in HEADER_FIELDS],
        "offsets": [offset for _, _, offset in HEADER_FIELDS],
        "itemsize": HEADER_SIZE,
    }
)
_TYPE_NAMES: Final = pl.DataFrame(
    {"type_code": list(NAME_OF_CODE), "event_type": list(NAME_OF_CODE.values())},
    schema={"type_code": pl.UInt16, "event_type": pl.String},
)
_INLINE_VIEW_MAX: Final = 12


class SegmentNewer(Exception):
    """The segment holds event types or schema versions of a newer trajlake: it waits until this one is upgraded."""


def open_sealed(path: str) -> SegmentColumns:
    """Read and check a sealed segment. Raises `SegmentCorrupt` with the reason, or `OSError`."""
    return scan_columns(read(path), path)


def event_columns(segment: SegmentColumns, path: str) -> pl.DataFrame:
    """Return the events of a segment as the columns of the table `events`, in lsn order, plus nothing else.

    `payload` points into the segment's bytes: the frame is cheap to filter and must be written or copied to
    outlive them. Raises `SegmentCorrupt` for payloads that are not UTF-8, `SegmentNewer` for unknown types.
    """
    headers = _headers(segment, path)
    payload_starts = np.frombuffer(segment.offsets, "<u8").astype(np.int64) + HEADER_SIZE
    lengths = headers["payload_length"].astype(np.int64)
    if len(lengths) and int((payload_starts + lengths).max()) > segment.data_size:
        raise SegmentCorrupt(f"{path}: a frame reaches into the SEAL", path=path)
    hashes = hex_column(headers["hash"])
    texts = _text_views(segment.data, payload_starts, lengths, path)
    frame = pl.DataFrame(
        {
            "sequence_number": np.ascontiguousarray(headers["sequence_number"]),
            "type_code": np.ascontiguousarray(headers["type_code"]),
            "schema_version": headers["schema_version"].astype(np.int32),
            "fencing_token": np.ascontiguousarray(headers["fencing_token"]),
            "turn": np.ascontiguousarray(headers["turn"]),
            "recorded_at": pl.Series(np.ascontiguousarray(headers["recorded_at"])).cast(pl.Datetime("us", "UTC")),
            "payload": texts,
            "salt": hex_column(headers["salt"]),
            "commitment": _commitments(segment.data, headers["salt"], payload_starts, lengths),
            "cryptographic_hash": hashes,
            "lsn": np.ascontiguousarray(headers["lsn"]),
            "ordinal": np.frombuffer(segment.ordinals, "<u4"),
        }
    )
    return _named(frame, segment)


def _headers(segment: SegmentColumns, path: str) -> np.ndarray[Any, Any]:
    """Gather the 128 bytes before each payload into one structured array, and check what the SEAL promises."""
    offsets = np.frombuffer(segment.offsets, "<u8")
    words = np.frombuffer(segment.data, "<u8", count=len(segment.data) // 8)
    gathered = words[(offsets // 8).astype(np.int64)[:, None] + np.arange(HEADER_SIZE // 8)]
    headers = np.ascontiguousarray(gathered).view(np.uint8).reshape(-1).view(_HEADER_DTYPE)
    expected = segment.first_lsn + np.arange(len(headers))
    if not np.array_equal(headers["lsn"], expected) or np.any(headers["epoch"] != segment.header.epoch):
        raise SegmentCorrupt(f"{path}: its SEAL names frames that are not its own", path=path)
    known = np.isin(headers["type_code"], np.array(list(NAME_OF_CODE), dtype=np.uint16))
    if not known.all() or np.any(headers["schema_version"] > CURRENT_SCHEMA_VERSION):
        raise SegmentNewer(f"{path}: holds events of a newer trajlake: upgrade, then compact again")
    return headers


def _named(frame: pl.DataFrame, segment: SegmentColumns) -> pl.DataFrame:
    infos = segment.trajectories
    named = pl.DataFrame(
        {
            "tenant": [info.tenant for info in infos],
            "trajectory_id": [info.trajectory_id for info in infos],
            "started_on": [dt.date.fromisoformat(info.started_on) for info in infos],
            "model": [model_partition(info.model, info.model_version) for info in infos],
        },
        schema={"tenant": pl.String, "trajectory_id": pl.String, "started_on": pl.Date, "model": pl.String},
    )
    owners = named[frame["ordinal"]]
    types = frame.select("type_code").join(_TYPE_NAMES, on="type_code", how="left", maintain_order="left")
    return frame.drop("ordinal", "type_code").with_columns(
        owners["tenant"],
        owners["trajectory_id"],
        types["event_type"],
        pl.lit(segment.header.writer).alias("writer"),
        owners["started_on"],
        owners["model"],
    )


def hex_column(digests: np.ndarray[Any, Any]) -> pl.Series:
    """Return fixed-size byte strings as a column of lower-case hex text, by one call over all of them."""
    width = digests.dtype.itemsize * 2
    text = np.ascontiguousarray(digests).tobytes().hex().encode()
    offsets = np.arange(0, len(text) + 1, width, dtype=np.int64)
    array = pa.Array.from_buffers(
        pa.large_string(), len(digests), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)]
    )
    return pl.Series(values=pl.from_arrow(array))


def _text_views(data: memoryview, starts: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], path: str) -> pl.Series:
    """Return the texts at `starts` without copying them: an Arrow view array over the segment's own bytes."""
    source = np.frombuffer(data, np.uint8)
    views = np.zeros((len(starts), 4), dtype="<i4")
    views[:, 0] = lengths
    # The SEAL follows the last payload, so that 12 bytes are always there.
    head = source[starts[:, None] + np.arange(_INLINE_VIEW_MAX)]
    short = lengths <= _INLINE_VIEW_MAX
    head = np.where(short[:, None] & (np.arange(_INLINE_VIEW_MAX) >= lengths[:, None]), 0, head).astype(np.uint8)
    inline = np.ascontiguousarray(head).view("<i4").reshape(-1, 3)
    views[:, 1] = inline[:, 0]
    views[:, 2] = np.where(short, inline[:, 1], 0)
    views[:, 3] = np.where(short, inline[:, 2], starts)
    array = pa.Array.from_buffers(
        pa.binary_view(), len(starts), [None, pa.py_buffer(views.tobytes()), pa.py_buffer(data)]
    )
    try:
        return pl.Series(values=pl.from_arrow(array)).cast(pl.String, strict=True)
    except pl.exceptions.PolarsError:
        raise SegmentCorrupt(f"{path}: a payload is not UTF-8", path=path) from None


def _commitments(
    data: memoryview, salts: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]
) -> pl.Series:
    """Return sha256(hex salt LF payload) of every frame as hex."""
    width = salts.dtype.itemsize * 2
    lines = np.full((len(salts), width + 1), ord("\n"), np.uint8)
    lines[:, :width] = np.frombuffer(salts.tobytes().hex().encode(), np.uint8).reshape(-1, width)
    digests = bytearray()
    heads = lines.view(f"S{width + 1}").ravel().tolist()
    for head, start, end in zip(heads, starts.tolist(), (starts + lengths).tolist(), strict=True):
        digest = sha256(head)
        digest.update(data[start:end])
        digests += digest.digest()
    return hex_column(np.frombuffer(digests, dtype="V32"))
