"""Bulk never enters a frame: large values become blobs, and back. Source: design/events.md.

The candidates are the values of a payload's `Json` fields, wherever in the payload they stand (`arguments`,
`output`, each `calls[].arguments`, each value of `stored`). One whose canonical JSON text (of a string: its
UTF-8) exceeds INLINE_MAX is replaced as a whole: outermost first, so nothing is left to replace inside it.
Fields that are plain text or numbers stay; FRAME_MAX bounds them.

What a blob holds: of a text its UTF-8, of a `$bytes` tag the bytes themselves, of any other value its compact
JSON text with keys in their own order. Only the decision is taken over the canonical text: storing that would
lose order, 1.0 and -0.0.
"""

from __future__ import annotations

import base64
import binascii
import functools
import types
import typing
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

import msgspec

from .canonical_json import canonical
from .errors import InvalidEvent, InvalidValue
from .events import Payload
from .limits import BLOB_HEAD_CHARS, INLINE_MAX
from .value_tags import write_bytes

BlobKind = Literal["text", "bytes", "json"]
PayloadT = typing.TypeVar("PayloadT", bound=Payload)
Json = Any

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_CANONICAL_GROWTH_MAX: Final = 6
"""Canonical text is at most this many times the compact text: `1e20,` becomes 22 characters."""
_CANONICAL_SHRINK_MAX: Final = 4
"""Compact text is at most this many times the canonical text: `-0.0,` becomes 2 characters."""


class Blob(NamedTuple):
    """Bytes to be stored beside the segments, before the event that names them. `sha256` is hex, of `data`.

    `text`: what `data` was made of, where that was a text and is at hand.
    """

    sha256: str
    data: bytes
    kind: BlobKind
    text: str | None = None


class BlobRef(NamedTuple):
    """What an event says of a blob. `head` is the first 200 characters; "" for bytes."""

    sha256: str
    size_bytes: int
    kind: BlobKind
    head: str


def offload(tree: Json) -> tuple[Json, list[Blob]]:
    """Return one candidate value as it goes into the event, and its blob if it was too large (at most one).

    A value that stays is returned itself. Raises `InvalidValue` for what is no tree of the value codec.
    """
    kind = type(tree)
    if kind is str:
        if len(tree) * 4 <= INLINE_MAX:
            return tree, []
        return _replace(tree, "text", _utf8(tree))
    if kind is not dict and kind is not list:
        return tree, []
    if kind is dict and len(tree) == 1 and type(tree.get("$bytes")) is str:
        text = tree["$bytes"]
        if len(text) + len('{"$bytes":""}') <= INLINE_MAX:
            return tree, []
        return _made(_bytes_of(text), "bytes", "")
    return _offload_container(tree)


def offload_payload(payload: PayloadT) -> tuple[PayloadT, list[Blob]]:
    """Return `payload` as it goes into its frame (itself if nothing was large) and the blobs to store before it."""
    blobs: list[Blob] = []
    return _offload_struct(payload, blobs), blobs


def is_blob(tree: Json) -> bool:
    """Return whether `tree` is a blob reference. User data never is: its `$` keys are escaped."""
    return type(tree) is dict and "$blob" in tree


def blob_ref(tree: Json) -> BlobRef:
    """Return what a blob reference says; raise `InvalidEvent` for a malformed one."""
    try:
        ref = BlobRef(tree["$blob"], tree["bytes"], tree["kind"], tree.get("head", ""))
    except (KeyError, TypeError, AttributeError):
        raise InvalidEvent(f"malformed blob reference: {str(tree)[:80]}") from None
    if not _is_digest(ref.sha256) or type(ref.size_bytes) is not int or ref.kind not in ("text", "bytes", "json"):
        raise InvalidEvent(f"malformed blob reference: {str(tree)[:80]}")
    return ref


def blob_refs(tree: Any) -> list[BlobRef]:
    """Return the blob references in a payload (struct or decoded JSON) or in any part of it, in order."""
    found: list[BlobRef] = []
    _collect(tree, found)
    return found


def blob_hashes(event_type: str, payload: bytes | None) -> set[str]:
    """Return the sha256 (hex) of every blob that an event's payload text names, also as a workspace change."""
    if payload is None:
        return set()
    # One byte is found ten times as fast as a word, and most payloads hold none.
    has_blob = b"$" in payload and b'"$blob"' in payload
    if not has_blob and (event_type != "ToolResult" or b'"changes"' not in payload):
        return set()
    tree = _decode(payload)
    named = {ref.sha256 for ref in blob_refs(tree)}
    if event_type == "ToolResult":
        named.update(change["sha256"] for change in tree.get("changes", ()) if change.get("sha256"))
    return named


def inline(tree: Json, get: Callable[[str], bytes]) -> Json:
    """Return `tree` with every blob put back exactly, by `get(sha256) -> data`.

    What `get` raises passes through. Raises `InvalidEvent` if the data are not those the event names.
    """
    if type(tree) is list:
        items = [inline(item, get) for item in tree]
        return items if any(new is not old for new, old in zip(items, tree, strict=True)) else tree
    if type(tree) is not dict:
        return tree
    if "$blob" in tree:
        return _restored(blob_ref(tree), get)
    members = {key: inline(item, get) for key, item in tree.items()}
    return members if any(members[key] is not item for key, item in tree.items()) else tree


def tree_of(blob: Blob) -> Json:
    """Return the value that a blob stands for. Its bytes are taken for those that its name says."""
    if blob.kind == "text":
        return blob.data.decode() if blob.text is None else blob.text
    return write_bytes(blob.data) if blob.kind == "bytes" else _decode(blob.data)


_NEVER_BULK: Final = frozenset((bool, int, float, msgspec.UnsetType))
_How = Literal["value", "values", "struct", "structs"]
_Plan = tuple[tuple[str, _How], ...]


def _offload_container(tree: Any) -> tuple[Json, list[Blob]]:
    try:
        data = _encode(tree)
        if len(data) * _CANONICAL_GROWTH_MAX <= INLINE_MAX:
            return tree, []
        if len(data) <= INLINE_MAX * _CANONICAL_SHRINK_MAX and len(canonical(tree)) <= INLINE_MAX:
            return tree, []
    except UnicodeEncodeError:
        raise InvalidValue("a value holds a lone surrogate; pass it through to_tree") from None
    head = data[: BLOB_HEAD_CHARS * 4].decode("utf-8", "ignore")[:BLOB_HEAD_CHARS]
    return _made(data, "json", head)


def _replace(text: str, kind: BlobKind, data: bytes) -> tuple[Json, list[Blob]]:
    return (text, []) if len(data) <= INLINE_MAX else _made(data, kind, text[:BLOB_HEAD_CHARS], text)


def _made(data: bytes, kind: BlobKind, head: str, text: str | None = None) -> tuple[Json, list[Blob]]:
    digest = sha256(data).hexdigest()
    reference: dict[str, Any] = {"$blob": digest, "bytes": len(data), "kind": kind}
    if kind != "bytes":
        reference["head"] = head
    return reference, [Blob(digest, data, kind, text)]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("a text holds a lone surrogate; pass it through to_tree") from None


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidValue("a $bytes tag holds no base64; pass bytes through to_tree") from None


def _restored(ref: BlobRef, get: Callable[[str], bytes]) -> Json:
    data = get(ref.sha256)
    computed = sha256(data).hexdigest()
    if computed != ref.sha256:
        raise InvalidEvent(f"blob {ref.sha256}: the stored bytes hash to {computed}; run 'trajlake journal verify'")
    return tree_of(Blob(ref.sha256, data, ref.kind))


def _offload_struct(struct: Any, blobs: list[Blob]) -> Any:
    changes: dict[str, Any] = {}
    for name, how in _plan(type(struct)):  # type: ignore[arg-type]  # a class is hashable
        value = getattr(struct, name)
        if value is None or type(value) in _NEVER_BULK:
            continue
        if how == "value":
            new, made = offload(value)
            blobs += made
        else:
            new = _offload_field(value, how, blobs)
        if new is not value:
            changes[name] = new
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _offload_field(value: Any, how: str, blobs: list[Blob]) -> Any:
    if how == "value":
        new, made = offload(value)
        blobs.extend(made)
        return new
    if how == "struct":
        return _offload_struct(value, blobs)
    if how == "structs":
        items = tuple(_offload_struct(item, blobs) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    members = {key: _offload_field(item, "value", blobs) for key, item in value.items()}
    return members if any(members[key] is not item for key, item in value.items()) else value


@functools.cache
def _plan(cls: type) -> _Plan:
    """Return which fields of a payload's struct hold `Json` (Any), directly or further in."""
    hints = typing.get_type_hints(cls)
    ways = ((name, _how(hints[name])) for name in getattr(cls, "__struct_fields__", ()))
    return tuple((name, how) for name, how in ways if how is not None)


def _how(hint: Any) -> _How | None:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [part for part in parts if part not in (type(None), msgspec.UnsetType)]
        return _how(kept[0]) if len(kept) == 1 else None
    if hint is Any:
        return "value"
    if origin is dict and parts[1] is Any:
        return "values"
    if origin is tuple:
        return "structs" if _is_struct(parts[0]) and _plan(parts[0]) else None
    return "struct" if _is_struct(hint) and _plan(hint) else None


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _collect(tree: Any, found: list[BlobRef]) -> None:
    if isinstance(tree, dict):
        if "$blob" in tree:
            found.append(blob_ref(tree))
            return
        for item in tree.values():
            _collect(item, found)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, msgspec.Struct):
        for name in tree.__struct_fields__:
            _collect(getattr(tree, name), found)


def _is_digest(text: Any) -> bool:
    return type(text) is str and len(text) == 64 and all(c in "0123456789abcdef" for c in text)
