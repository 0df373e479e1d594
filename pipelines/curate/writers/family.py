"""What a writer of one trainer family is: it takes samples in order, refuses by name what its reader would lose, and
leaves files whose bytes depend on the samples alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..sample import Sample

ROW_GROUP_ROWS: Final = 256
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024


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


class JsonLines:
    """JSON lines, one file for each split, opened when its first line comes."""

    def __init__(self, folder: str, family: str, encode: Callable[[Any], bytes] | None = None) -> None:
        self._folder = folder
        self._family = family
        self._files: dict[str, IO[bytes]] = {}
        self._rows: dict[str, int] = {}
        self._encode = encode or msgspec.json.Encoder().encode

    def add(self, split: str, row: Any) -> None:
        file = self._files.get(split)
        if file is None:
            path = os.path.join(self._folder, self._family, f"{split}.jsonl")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = self._files[split] = open(path, "wb", buffering=1 << 20)  # noqa: SIM115  # closed in close()
            self._rows[split] = 0
        file.write(self._encode(row) + b"\n")
        self._rows[split] += 1

    def close(self) -> list[FileFacts]:
        found = []
        for split, file in sorted(self._files.items()):
            file.close()
            found.append(facts_of(self._folder, f"{self._family}/{split}.jsonl", self._rows[split]))
        return found


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
        self._behind = ThreadPoolExecutor(1, thread_name_prefix="trajlake-parquet")
        self._writing: Future[None] | None = None

    def add(self, split: str, row: dict[str, Any], size: int) -> None:
        waiting = self._waiting.setdefault(split, [])
        waiting.append(row)
        self._sizes[split] = self._sizes.get(split, 0) + size
        if len(waiting) >= ROW_GROUP_ROWS or self._sizes[split] >= ROW_GROUP_BYTES:
            self._flush(split)

    def close(self) -> list[FileFacts]:
        for split in sorted(self._waiting):
            self._flush(split)
        self._settle()
        self._behind.shutdown()
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
        self._settle()
        self._writing = self._behind.submit(writer.write_table, table, row_group_size=len(table))

    def _settle(self) -> None:
        """Wait for the row group that is being written; raise what it failed with."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly `schema`; JSON columns are given as text or lists of text."""
    return pa.Table.from_arrays([_array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.JsonType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.string()))
    if pa.types.is_list(kind) and isinstance(kind.value_type, pa.JsonType):
        lists = pa.array(values, pa.list_(pa.string()))
        inner = pa.ExtensionArray.from_storage(kind.value_type, lists.values)
        return pa.ListArray.from_arrays(lists.offsets, inner, mask=lists.is_null() if lists.null_count else None)
    return pa.array(values, kind)


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
