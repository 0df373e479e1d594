"""Leaves of the importers: times, labels, value trees and ids out of what a source holds."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from trajlake.schemas.context import TRANSPORT_ONLY, item_hash
from trajlake.schemas.errors import InvalidId, InvalidValue
from trajlake.schemas.ids import check_trajectory_id
from trajlake.schemas.limits import SAFE_INTEGER_MAX
from trajlake.schemas.value_tags import is_odd_text
from trajlake.schemas.values import plain_text, to_tree, to_tree_lossy

from .contract import BadSource

_NUL: Final = b"\\u0000"
"""What a text holds where one of its strings has U+0000, which needs the slow way."""
_plain_keys: Final[set[str]] = set()
_PLAIN_KEYS_MAX: Final = 10_000
_SIMPLE_DEPTH_MAX: Final = 60
_sorted_text: Final = msgspec.json.Encoder(order="deterministic").encode
LABEL_CHARS_MAX: Final = 1_000
"""Longest text kept in a field that is a name or a reason; the source record itself is kept whole."""


def time_us(value: Any) -> int | None:
    """Return a source's time (ISO 8601 text, epoch seconds or milliseconds) as µs UTC; None if it is none."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 4e12:
        return round(value * 1_000) if value > 1e11 else round(value * 1_000_000)
    return None


def label(value: Any) -> str:
    """Return a value of the source as a short plain text for a field that is a name: "" for null and absent."""
    if type(value) is str and len(value) <= LABEL_CHARS_MAX and value.isascii() and "\0" not in value:
        return value
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    text = text[:LABEL_CHARS_MAX]
    return plain_text(text) if is_odd_text(text) else text


def record_tree(value: Any) -> Any:
    """Return the value tree of something the source holds; too deep or strange, a marker with its repr."""
    if type(value) is str and not is_odd_text(value):
        return value
    try:
        return to_tree(value)
    except InvalidValue:
        return to_tree_lossy(value)[0]


class Wire(NamedTuple):
    """A message as a value tree with its item hash."""

    tree: Any
    digest: str


def wire_item(value: Any, raw: bytes | None = None) -> Wire:
    """Return a message's tree and hash. `raw`: the exact text it was decoded from by a plain decoder, if any.

    Most messages need neither tags nor care for canonical numbers: one look tells, and the C encoder does the rest.
    """
    if raw is not None and _NUL not in raw and _is_simple(value, 0):
        return Wire(value, sha256(_sorted_text(value)).hexdigest())
    tree = record_tree(value)
    return Wire(tree, item_hash(tree))


def _is_simple(value: Any, depth: int) -> bool:
    """Return whether the codec and the canonical form leave a decoded value as it is (strings aside)."""
    kind = type(value)
    if kind is dict:
        if depth > _SIMPLE_DEPTH_MAX or not (value.keys() <= _plain_keys or all(map(_is_plain_key, value))):
            return False
        inside = value.values()
    elif kind is list:
        if depth > _SIMPLE_DEPTH_MAX:
            return False
        inside = value
    else:
        inside = (value,)
    for item in inside:
        what = type(item)
        if what is str or item is None or what is bool:
            continue
        if what is int:
            if not -SAFE_INTEGER_MAX <= item <= SAFE_INTEGER_MAX:
                return False
        elif (what is not dict and what is not list) or not _is_simple(item, depth + 1):
            return False
    return True


def _is_plain_key(key: str) -> bool:
    """Return whether a key needs no tag, no care in sorting, and does not steer a cache only. Remembers those."""
    if not key.isascii() or key.startswith("$") or key in TRANSPORT_ONLY:
        return False
    if len(_plain_keys) < _PLAIN_KEYS_MAX:
        _plain_keys.add(key)
    return True


def first_record_hash(record: bytes) -> str:
    """Return the hash (hex) of a source's first record, which salts derive from."""
    return sha256(record).hexdigest()


def session_id(format_name: str, session: str, name: str, place: str) -> str:
    """Return `<format>/<session>` as a trajectory id; raise `BadSource` for a session that is hostile or no id."""
    what = None
    if not session.strip():
        what = "the session id is empty or blank"
    elif session.startswith("/") or "\\" in session or any(part in ("..", ".") for part in session.split("/")):
        what = f"the session id {ascii(session[:60])} looks like a path"
    if what is None:
        try:
            return check_trajectory_id(f"{format_name}/{session}")
        except InvalidId as error:
            what = str(error)
    raise BadSource(name, place, f"{what}; nothing was imported, give the session another id")
