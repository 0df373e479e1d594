"""Reads source files through importers for tests, and counts what came out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from trajlake.ingest.formats.conformance import by_trajectory
from trajlake.ingest.formats.contract import Item, Loss, ReadOptions
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import ModelReplied, ToolResult


class Read(NamedTuple):
    items: list[Item]
    loss: Loss

    @property
    def counts(self) -> Counter[str]:
        return Counter(type(item.payload).__name__ for item in self.items)

    def of(self, kind: type) -> list[Any]:
        return [item.payload for item in self.items if isinstance(item.payload, kind)]

    @property
    def calls(self) -> list[Any]:
        return [call for reply in self.of(ModelReplied) for call in reply.calls]

    @property
    def unanswered(self) -> int:
        return len(self.calls) - len(self.of(ToolResult))

    def kept(self, kind: str) -> list[Any]:
        return [one for one in self.items if getattr(one.payload, "kind", None) == kind]

    def usage(self) -> tuple[int, int, int, int]:
        """Sums of input_total, cached_read, cache_write, output."""
        told = [reply.usage for reply in self.of(ModelReplied) if reply.usage is not None]
        return (
            sum(one.input_total or 0 for one in told),
            sum(one.cached_read or 0 for one in told),
            sum(one.cache_write or 0 for one in told),
            sum(one.output or 0 for one in told),
        )


def read(format_name: str, source: Path | bytes | Source, **options: Any) -> Read:
    loss = Loss()
    if isinstance(source, Path):
        source = Source.of_path(str(source))
    elif isinstance(source, bytes):
        source = Source.of_bytes(source, "test.jsonl")
    items = list(importer(format_name).read(source, ReadOptions(**options), loss))
    return Read(items, loss)


def arguments_text(reply: ModelReplied, index: int) -> str | None:
    """The text of a call's arguments as a consumer finds it: beside the call, else at its pointer in raw."""
    call = reply.calls[index]
    if call.arguments is not None:
        return str(call.arguments)
    if not call.pointer:
        return None
    value = json.loads(reply.raw)
    for part in call.pointer.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part.replace("~1", "/").replace("~0", "~")]
    return str(value)


def all_arguments(read_: Read) -> list[str | None]:
    return [arguments_text(reply, n) for reply in read_.of(ModelReplied) for n in range(len(reply.calls))]


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


__all__ = ["Read", "all_arguments", "arguments_text", "by_trajectory", "jsonl", "read"]
