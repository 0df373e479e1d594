"""Members and elements of very large JSON values by their place in a buffer, without decoding or copying them.

Fast by msgspec where it accepts the text; else by a scan over brackets and strings, which takes what msgspec
refuses (NaN, lone surrogates, any depth). The scan trusts what lies between the brackets: parts are decoded, and
refused, one by one later.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from .json_text import NotJson, value_of

Buffer: TypeAlias = bytes | mmap.mmap
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{},:]', re.DOTALL)
_SPACE: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\r\n]+', re.DOTALL)


def big_members(buffer: Buffer | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of the object that a buffer holds, of a repeated key the last. Raises `NotJson`."""
    try:
        return _members.decode(buffer)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        found = {}
        buffer = bytes(buffer) if isinstance(buffer, msgspec.Raw) else buffer
        for key, start, end in _scan(buffer, b"{"):
            name = value_of(key)
            if not isinstance(name, str):
                raise NotJson(f"expected a key before byte {start}") from None
            found[name] = msgspec.Raw(buffer[start:end].strip())
        return found


def big_elements(raw: msgspec.Raw | Buffer) -> list[msgspec.Raw]:
    """Return the elements of an array. Raises `NotJson`."""
    try:
        return _elements.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        buffer = bytes(raw) if isinstance(raw, msgspec.Raw) else raw
        return [msgspec.Raw(buffer[start:end].strip()) for _, start, end in _scan(buffer, b"[")]


def compact(text: bytes) -> bytes:
    """Return JSON text without white space outside strings: the same run written in two ways gives the same text."""
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _SPACE.sub(rb"\1", text)


def _scan(buffer: Buffer, bracket: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (key text or b"", start, end) of each part of the object or array that a buffer holds."""
    depth, start, key, last_string = 0, 0, b"", b""
    closed = False
    for token in _TOKEN.finditer(buffer):
        text = token.group()
        if depth == 0:
            if closed or text != bracket or buffer[: token.start()].strip():
                raise NotJson(f"expected {bracket.decode()!r} at byte {token.start()}")
            depth, start = 1, token.end()
            continue
        if text[0] == 0x22:
            last_string = text if depth == 1 else last_string
        elif text in (b"[", b"{"):
            depth += 1
        elif text == b":" and depth == 1:
            key, start = last_string, token.end()
        elif text in (b"]", b"}") or (text == b"," and depth == 1):
            depth -= text != b","
            if depth == 0 or text == b",":
                if buffer[start : token.start()].strip():
                    yield key, start, token.start()
                start, key = token.end(), b""
                closed = depth == 0
    if not closed:
        raise NotJson(f"the value is cut short at byte {len(buffer)}")
