"""What a writer of one trainer family is: it takes samples in order, refuses by name what its reader would lose, and
leaves files whose bytes depend on the samples alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ..sample import Sample

ROW_GROUP_ROWS: Final = 256
_NULL_CONTENT: Final = re.compile(rb'\{"role":"[a-z]+","content":null')
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
LINES_BYTES: Final = 1024 * 1024
"""JSON lines that are written at once."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a set: path below the set, and what a rebuild must give again."""

    path: str
    rows: int
    bytes: int
    sha256: str


class Writer(Protocol):
    """One trainer family. `refused` counts samples by the reason for which the family cannot hold them."""

    family: str
    refused: dict[str, int]

    def write(self, sample: Sample) -> None: ...

    def close(self) -> list[FileFacts]: ...


class _Behind:
    """One job at a time on a thread of its own: files are written while the next rows are made."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trajlake-writer")
        self._job: Future[None] | None = None

    def run(self, job: Callable[[], None]) -> None:
        """Wait for the job before, raise what it failed with, and begin this one."""
        self.settle()
        self._job = self._thread.submit(job)

    def settle(self) -> None:
        """Wait for the job that runs; raise what it failed with."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def close(self) -> None:
        self.settle()
        self._thread.shutdown()


class _Lines:
    """One file of JSON lines and its hash."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.file = open(path, "wb")  # noqa: SIM115  # closed in JsonLines.close()
        self.hash = hashlib.sha256()
        self.rows = self.bytes = 0

    def write(self, lines: list[bytes]) -> None:
        data = b"\n".join([*lines, b""])
        self.file.write(data)
        self.hash.update(data)
        self.rows += len(lines)
        self.bytes += len(data)


class JsonLines:
    """JSON lines, one file for each split, opened when its first line comes."""

    def __init__(self, folder: str, family: str) -> None:
        self._folder = folder
        self._family = family
        self._files: dict[str, _Lines] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._behind = _Behind()

    def add(self, split: str, row: Any) -> None:
        self.add_line(split, msgspec.json.encode(row))

    def add_line(self, split: str, line: bytes) -> None:
        """Add a row that is JSON text already."""
        self._waiting.setdefault(split, []).append(line)
        self._sizes[split] = self._sizes.get(split, 0) + len(line)
        if self._sizes[split] >= LINES_BYTES:
            self._flush(split)

    def close(self) -> list[FileFacts]:
        for split in sorted(self._waiting):
            self._flush(split)
        self._behind.close()
        found = []
        for split, one in sorted(self._files.items()):
            one.file.close()
            path = f"{self._family}/{split}.jsonl"
            found.append(FileFacts(path=path, rows=one.rows, bytes=one.bytes, sha256=one.hash.hexdigest()))
        return found

    def _flush(self, split: str) -> None:
        if split not in self._files:
            self._files[split] = _Lines(os.path.join(self._folder, self._family, f"{split}.jsonl"))
        lines, self._waiting[split], self._sizes[split] = self._waiting[split], [], 0
        self._behind.run(functools.partial(self._files[split].write, lines))


class ParquetRows:
    """Parquet with an explicit schema, one file for each split. Row groups are cut by rows and bytes as they come,
    so that the bytes of a file depend on its rows and nothing else. One is compressed while the next is gathered."""

    def __init__(self, folder: str, family: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._family = family
        self.schema = schema
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._behind = _Behind()

    def add(self, split: str, row: dict[str, Any], size: int) -> None:
        waiting = self._waiting.setdefault(split, [])
        waiting.append(row)
        self._sizes[split] = self._sizes.get(split, 0) + size
        if len(waiting) >= ROW_GROUP_ROWS or self._sizes[split] >= ROW_GROUP_BYTES:
            self._flush(split)

    def close(self) -> list[FileFacts]:
        for split in sorted(self._waiting):
            self._flush(split)
        self._behind.close()
        found = []
        for split, writer in sorted(self._writers.items()):
            writer.close()
            found.append(facts_of(self._folder, f"{self._family}/{split}.parquet", self._rows[split]))
        return found

    def _flush(self, split: str) -> None:
        rows = self._waiting[split]
        if not rows:
            return
        writer = self._writers.get(split)
        if writer is None:
            path = os.path.join(self._folder, self._family, f"{split}.parquet")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            writer = self._writers[split] = pq.ParquetWriter(
                path, self.schema, compression="zstd", compression_level=3, version="2.6", store_schema=True
            )
            self._rows[split] = 0
        table = table_of(rows, self.schema)
        self._rows[split] += len(rows)
        self._waiting[split] = []
        self._sizes[split] = 0
        self._behind.run(functools.partial(writer.write_table, table, row_group_size=len(table)))


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly `schema`; JSON columns are given as text or lists of text."""
    return pa.Table.from_arrays([_array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.JsonType):
        return pa.ExtensionArray.from_storage(kind, _array(values, pa.string()))
    if pa.types.is_list(kind) and isinstance(kind.value_type, pa.JsonType):
        lists = _array(values, pa.list_(pa.string()))
        inner = pa.ExtensionArray.from_storage(kind.value_type, lists.values)
        return pa.ListArray.from_arrays(lists.offsets, inner, mask=lists.is_null() if lists.null_count else None)
    if pa.types.is_struct(kind) or (pa.types.is_list(kind) and pa.types.is_nested(kind.value_type)):
        return pa.array(values, kind)
    # Not by pa.array, which brings in pandas: most of a second before the first row.
    dtype = pl.Series(pa.nulls(0, kind)).dtype
    return pl.Series(values, dtype=dtype).to_arrow().cast(kind)


def facts_of(folder: str, relative: str, rows: int) -> FileFacts:
    """Return the facts of a finished file."""
    path = os.path.join(folder, relative)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileFacts(path=relative, rows=rows, bytes=os.path.getsize(path), sha256=digest)


def count(refused: dict[str, int], reason: str) -> None:
    refused[reason] = refused.get(reason, 0) + 1


def texts(trees: Iterable[Any]) -> list[str]:
    """Return each tree as JSON text."""
    return [msgspec.json.encode(tree).decode() for tree in trees]


def spoken(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose null content is "": the one change of encoding that templates need."""
    return {**message, "content": ""} if message.get("content") is None else message


def spoken_text(text: bytes) -> bytes:
    """Return what `spoken` makes of a message, as JSON text of both."""
    return msgspec.json.encode(spoken(msgspec.json.decode(text))) if _NULL_CONTENT.match(text) else text


def with_objects(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message with arguments as objects, where every one of them is one and says the same; else None.

    Repeated keys and integers beyond 2^53 do not survive the object form: such a message has none.
    """
    calls = message.get("tool_calls")
    if not calls:
        return message
    made = []
    for call in calls:
        text = call["function"]["arguments"]
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return None
        if not isinstance(value, dict) or not _survives(value) or _repeats(text, value):
            return None
        made.append({**call, "function": {**call["function"], "arguments": value}})
    return {**message, "tool_calls": made}


def _survives(value: Any) -> bool:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return True
    if isinstance(value, int):
        return abs(value) < 1 << 53
    if isinstance(value, float):
        return True
    return all(map(_survives, value.values() if isinstance(value, dict) else value))


def _repeats(text: str, value: dict[str, Any]) -> bool:
    import json

    pairs = 0

    def count_pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal pairs
        pairs += len(found)
        return dict(found)

    json.loads(text, object_pairs_hook=count_pairs)
    return pairs != _keys(value)


def _keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0
