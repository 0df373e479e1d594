"""One Inspect sample, however it is laid out: its parts, its events one by one, its pools and attachments.

A sample is one JSON object (a member of the archive, or an element of a `.json` log), or, in the chunked layout,
a shell with sequences of messages, events, calls and attachments beside it. Both give the same texts: attachments
are put back where they are named, and white space outside strings is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from .build import label
from .chat_shapes import Said, said_of
from .inspect_zip import Archive, DamagedMember
from .json_spans import Buffer, big_elements, big_members, compact
from .json_text import NotJson, decode, raw_members, value_of
from .prompts import Pooled

NO_RAW: Final = msgspec.Raw(b"")
BULK: Final = ("messages", "events", "attachments", "events_data", "message_pool", "message_refs", "metadata")
_REFERENCE: Final = re.compile(rb'"(?:attachment|tc)://([0-9a-f]{32}|\d+)"')
_CHUNK_NAME: Final = re.compile(r"(messages|events|calls|attachments)/(\d+)\.json")
DERIVED: Final = ("skeleton.json", "events/stats.json", "events/uuids.json")


class Sample:
    """The parts of one sample. `place` leads to it in any layout: its id and epoch."""

    def __init__(self, shell: dict[str, msgspec.Raw]) -> None:
        self.shell = shell
        told = [str(value_of(shell[key])) if key in shell else "" for key in ("id", "epoch")]
        self.place = f"sample {label(told[0])} epoch {label(told[1]) or '1'}"
        self._attachments: Callable[[str], msgspec.Raw | None] = lambda _: None
        self._pool: list[msgspec.Raw] = []
        self._pooled: list[Pooled] = []
        self._metadata = shell.get("metadata", NO_RAW)
        self.call_pool_size = 0
        self._event_chunks: list[Callable[[], list[msgspec.Raw]]] = []
        self._final: Callable[[], list[msgspec.Raw]] = list
        self._by_id: dict[str, msgspec.Raw] | None = None
        self.derived = 0

    # -- what it holds

    def value(self, key: str) -> Any:
        """Return a field of the sample as data, attachments put back; None if it is absent."""
        return value_of(self.full(self.shell[key])) if key in self.shell else None

    def rest(self) -> str:
        """Return the fields that are no bulk, as JSON text."""
        kept = {key: self.full(raw) for key, raw in self.shell.items() if key not in BULK}
        parts = [msgspec.json.encode(key) + b":" + bytes(raw) for key, raw in kept.items()]
        return (b"{" + b",".join(parts) + b"}").decode("utf-8", "surrogateescape")

    def metadata(self) -> str:
        """Return the sample's metadata as JSON text; "" for none."""
        text = bytes(self.full(self._metadata)).decode("utf-8", "surrogateescape")
        return "" if text in ("", "{}", "null") else text

    def events(self) -> Iterator[tuple[msgspec.Raw, str]]:
        """Yield the events in order, whole, each with its place."""
        number = 0
        for load in self._event_chunks:
            for raw in load():
                yield self.full(raw), f"{self.place} /events/{number}"
                number += 1

    def messages(self) -> list[msgspec.Raw]:
        """Return the final conversation, attachments put back."""
        return [self.full(raw) for raw in self._final()]

    def pooled(self, refs: Any) -> list[Pooled] | None:
        """Return the messages that half-open ranges of the pool name; None where the pool does not hold them."""
        found: list[Pooled] = []
        for pair in refs if isinstance(refs, list) else []:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, int) for one in pair)):
                return None
            if not 0 <= pair[0] <= pair[1] <= len(self._pool):
                return None
            while len(self._pooled) < pair[1]:
                self._pooled.append(self._pooled_at(len(self._pooled)))
            found += self._pooled[pair[0] : pair[1]]
        return found

    def tool_message(self, message_id: str) -> Said | None:
        """Return a tool message of pool or final conversation by its id: what the model was given."""
        if self._by_id is None:
            self._by_id = {}
            for raw in (*self._pool, *self._final()):
                head = _decode_head(raw)
                if head is not None and head.role == "tool" and isinstance(head.id, str):
                    self._by_id[head.id] = raw
        found = self._by_id.get(message_id)
        said = said_of(self.full(found)) if found is not None else []
        return said[0] if said else None

    def full(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Return JSON text with attachments put back and without white space outside strings."""
        text = compact(bytes(raw))
        if b"://" in text:
            text = _REFERENCE.sub(self._attached, text)
        return msgspec.Raw(text)

    def _attached(self, match: re.Match[bytes]) -> bytes:
        found = self._attachments(match[1].decode())
        return match[0] if found is None else bytes(found)

    def _pooled_at(self, index: int) -> Pooled:
        def read() -> Said:
            raw = self.full(self._pool[index])
            found = said_of(raw)
            return found[0] if found else Said("user", value_of(raw))

        return Pooled(read().key, read)

    # -- how it is laid out

    @classmethod
    def whole(cls, raw: msgspec.Raw | Buffer) -> Sample:
        """Return the sample that one JSON object holds. Raises `NotJson`."""
        sample = cls(big_members(raw))
        shell = sample.shell
        data = raw_members(shell["events_data"]) if "events_data" in shell else None
        pool = (data or {}).get("messages", shell.get("message_pool", NO_RAW))
        sample._pool = _list(pool)
        sample.call_pool_size = len(_list((data or {}).get("calls", NO_RAW)))
        attached = big_members(bytes(shell["attachments"])) if "attachments" in shell else {}
        sample._attachments = attached.get
        sample._final = lambda: _list(shell.get("messages", NO_RAW))
        sample._event_chunks = [lambda: _list(shell.get("events", NO_RAW))]
        return sample

    @classmethod
    def chunked(cls, archive: Archive, prefix: str) -> Sample:
        """Return the sample whose chunks stand below `prefix`. Raises `NotJson` and `DamagedMember`."""
        sample = cls(big_members(archive.read(f"{prefix}/sample.json")))
        chunks: dict[str, list[tuple[int, str]]] = {}
        for name in archive.names():
            inside = name.removeprefix(f"{prefix}/") if name.startswith(f"{prefix}/") else ""
            if found := _CHUNK_NAME.fullmatch(inside):
                chunks.setdefault(found[1], []).append((int(found[2]), name))
            sample.derived += inside in DERIVED
        names = {kind: [name for _, name in sorted(mine)] for kind, mine in chunks.items()}
        for kind, mine in chunks.items():
            if min(mine)[0] != 0:
                raise DamagedMember(f"its {kind} begin at {min(mine)[0]}: an earlier chunk is missing")
        sample._pool = [raw for name in names.get("messages", ()) for raw in big_elements(archive.read(name))]
        attached = [raw for name in names.get("attachments", ()) for raw in big_elements(archive.read(name))]
        sample._attachments = lambda key: attached[int(key)] if key.isdigit() and int(key) < len(attached) else None
        sample._event_chunks = [partial(_chunk, archive, name) for name in names.get("events", ())]
        sample.call_pool_size = sum(len(big_elements(archive.read(name))) for name in names.get("calls", ()))
        if f"{prefix}/metadata.json" in archive:
            sample._metadata = msgspec.Raw(bytes(archive.read(f"{prefix}/metadata.json")))
        refs = value_of(sample.shell["message_refs"]) if "message_refs" in sample.shell else []
        sample._final = lambda: [sample._pool[at] for start, end in refs for at in range(start, end)]
        return sample


class _Head(msgspec.Struct):
    """The short fields of a message."""

    id: Any = None
    role: Any = None


def _decode_head(raw: msgspec.Raw) -> _Head | None:
    try:
        return decode(raw, _Head)
    except NotJson:
        return None


def _chunk(archive: Archive, name: str) -> list[msgspec.Raw]:
    return big_elements(archive.read(name))


def _list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return [] if len(bytes(memoryview(raw)[:1])) == 0 else big_elements(raw)


__all__ = ["DamagedMember", "NotJson", "Sample"]
