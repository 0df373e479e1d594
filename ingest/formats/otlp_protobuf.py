"""OTLP traces as protobuf, turned into the JSON that OTLP defines for them: the reader of JSON does the rest.

One message is what an exporter posts; a file of the collector holds many, each behind its length (four bytes, the
highest first). Only the fields of traces are known here; others are passed over, as protobuf asks. The wire format is
five kinds of values, so that no library is needed to read it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
_PREFIX: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct("<d")
DEPTH_MAX: Final = 60
"""Deepest nesting of attribute values that is read."""

Value = int | bytes
Read = Callable[[Value, int], Any]


class NotProtobuf(ValueError):
    """The bytes are no message of traces; the text says where."""


def looks_like_traces(head: bytes) -> bool:
    """Return whether a source's first bytes begin a message of traces, bare or behind its length."""
    return is_bare(head) or (len(head) > 4 and head[0] < 0x20 and is_bare(head[4:]))


def messages(data: bytes) -> Iterator[bytes | NotProtobuf]:
    """Yield each message of traces as OTLP JSON. One that is damaged or cut short comes as the error, as the last."""
    if is_bare(data):
        yield _as_json(data, 0)
        return
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            yield NotProtobuf(f"byte {at}: the last message is cut short")
            return
        (size,) = _PREFIX.unpack_from(data, at)
        if at + 4 + size > len(data):
            yield NotProtobuf(f"byte {at}: the last message is cut short")
            return
        made = _as_json(data[at + 4 : at + 4 + size], at + 4)
        yield made
        if isinstance(made, NotProtobuf):
            return
        at += 4 + size


def _as_json(data: bytes, at: int) -> bytes | NotProtobuf:
    try:
        return msgspec.json.encode(_message(data, _TRACES, 0))
    except NotProtobuf as error:
        return NotProtobuf(f"byte {at}: {error}")


def is_bare(head: bytes) -> bool:
    """Return whether a message of traces begins here, with no length before it.

    It begins with `resource_spans` (field 1), and that with `resource` or `scope_spans`: a text of line ends does not.
    """
    try:
        if head[:1] != b"\x0a":
            return False
        size, at = _varint(head, 1)
        inner, begin = _varint(head, at + 1)
    except NotProtobuf:
        return False
    return head[at : at + 1] in (b"\x0a", b"\x12") and 2 <= inner + (begin - at) <= size


def _fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Yield (field number, wire type, value) of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        value: Value
        if kind == VARINT:
            value, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            if at + size > len(data):
                raise NotProtobuf("a number is cut short")
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        elif kind == LENGTH:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise NotProtobuf("a field is longer than its message")
            value, at = data[at : at + size], at + size
        else:
            raise NotProtobuf(f"wire type {kind} is none of OTLP's")
        yield number, kind, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise NotProtobuf("a number is cut short")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


class _Field:
    """A field of a message: its JSON name, how it is read, whether it repeats."""

    def __init__(self, name: str, read: Read, *, repeats: bool = False) -> None:
        self.name = name
        self.read = read
        self.repeats = repeats


def _message(data: Value, fields: dict[int, _Field], depth: int) -> dict[str, Any]:
    if not isinstance(data, bytes) or depth > DEPTH_MAX:
        raise NotProtobuf("a message stands where none can be")
    found: dict[str, Any] = {}
    for number, _, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        read = field.read(value, depth)
        if field.repeats:
            found.setdefault(field.name, []).append(read)
        else:
            found[field.name] = read
    return found


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("a number stands where bytes belong")
    return value


def _text(value: Value, _: int) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _hex(value: Value, _: int) -> str:
    return _bytes(value).hex()


def _integer(value: Value, _: int) -> int:
    if isinstance(value, bytes):
        raise NotProtobuf("bytes stand where a number belongs")
    return value


def _long(value: Value, depth: int) -> str:
    """64 bits are text in OTLP JSON."""
    return str(_integer(value, depth))


def _signed(value: Value, depth: int) -> str:
    number = _integer(value, depth)
    return str(number - (1 << 64) if number >> 63 else number)


def _double(value: Value, depth: int) -> float | str:
    number = float(_DOUBLE.unpack(_integer(value, depth).to_bytes(8, "little"))[0])
    if number != number:
        return "NaN"
    return number if abs(number) != float("inf") else ("Infinity" if number > 0 else "-Infinity")


def _of(fields: dict[int, _Field]) -> Read:
    return lambda value, depth: _message(value, fields, depth + 1)


_VALUE: Final[dict[int, _Field]] = {}
_PAIR: Final = {1: _Field("key", _text), 2: _Field("value", _of(_VALUE))}
_ATTRIBUTES: Final = _Field("attributes", _of(_PAIR), repeats=True)
_VALUE.update(
    {
        1: _Field("stringValue", _text),
        2: _Field("boolValue", lambda value, depth: bool(_integer(value, depth))),
        3: _Field("intValue", _signed),
        4: _Field("doubleValue", _double),
        5: _Field("arrayValue", _of({1: _Field("values", _of(_VALUE), repeats=True)})),
        6: _Field("kvlistValue", _of({1: _Field("values", _of(_PAIR), repeats=True)})),
        7: _Field("bytesValue", lambda value, _: base64.b64encode(_bytes(value)).decode()),
    }
)
_EVENT: Final = {1: _Field("timeUnixNano", _long), 2: _Field("name", _text), 3: _ATTRIBUTES}
_LINK: Final = {
    1: _Field("traceId", _hex), 2: _Field("spanId", _hex), 3: _Field("traceState", _text), 4: _ATTRIBUTES,
}  # fmt: skip
_SPAN: Final = {
    1: _Field("traceId", _hex),
    2: _Field("spanId", _hex),
    3: _Field("traceState", _text),
    4: _Field("parentSpanId", _hex),
    5: _Field("name", _text),
    6: _Field("kind", _integer),
    7: _Field("startTimeUnixNano", _long),
    8: _Field("endTimeUnixNano", _long),
    9: _ATTRIBUTES,
    10: _Field("droppedAttributesCount", _integer),
    11: _Field("events", _of(_EVENT), repeats=True),
    12: _Field("droppedEventsCount", _integer),
    13: _Field("links", _of(_LINK), repeats=True),
    14: _Field("droppedLinksCount", _integer),
    15: _Field("status", _of({2: _Field("message", _text), 3: _Field("code", _integer)})),
    16: _Field("flags", _integer),
}
_SCOPE: Final = {1: _Field("name", _text), 2: _Field("version", _text), 3: _ATTRIBUTES}
_SCOPE_SPANS: Final = {
    1: _Field("scope", _of(_SCOPE)), 2: _Field("spans", _of(_SPAN), repeats=True), 3: _Field("schemaUrl", _text),
}  # fmt: skip
_RESOURCE_SPANS: Final = {
    1: _Field("resource", _of({1: _ATTRIBUTES})),
    2: _Field("scopeSpans", _of(_SCOPE_SPANS), repeats=True),
    3: _Field("schemaUrl", _text),
}
_TRACES: Final = {1: _Field("resourceSpans", _of(_RESOURCE_SPANS), repeats=True)}
