"""Canonical JSON (RFC 8785): one text per tree, so that equal trees have equal hashes on every machine.

Only hashes are taken over this text. It is not how values are stored: it forgets the order of keys, and
writes 1.0 as 1 and -0.0 as 0. Strings and integers are written by msgspec's C encoder, whose escapes are
those of the RFC; floats and the order of keys beyond ASCII are done here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from .errors import InvalidValue
from .limits import SAFE_INTEGER_MAX

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_PLAIN: Final[tuple[type[Any], ...]] = (str, int, float, dict, list)


def canonical(tree: Any) -> bytes:
    """Return the RFC 8785 text of a JSON tree (dict, list or tuple, str, int, float, bool, None) in UTF-8.

    Integers beyond ±(2^53-1) are rounded to a double, as the RFC asks: hashes that must tell them apart go
    through `exact_canonical`. Raises `InvalidValue` for NaN, infinities, lone surrogates, keys that are no
    strings, other types and nesting that Python cannot follow.
    """
    try:
        return _encode(_prepare(tree))
    except UnicodeEncodeError:
        raise InvalidValue("canonical JSON: a string holds a lone surrogate; tag it with to_tree first") from None
    except RecursionError:
        raise InvalidValue("canonical JSON: nested too deeply") from None


def exact_canonical(tree: Any) -> bytes:
    """Return `canonical(tree)` after tagging what that text would lose or other readers refuse.

    Integers beyond ±(2^53-1), non-finite floats, U+0000 and lone surrogates become the tags of the value
    codec. On a tree made by `values.to_tree` nothing is left to tag, so both give the same bytes.
    """
    from .values import tag_tree

    return canonical(tag_tree(tree))


def parse_arguments(text: str | bytes) -> Any:
    """Return the value of the argument text that a model emitted; raise `InvalidValue` if it is not JSON.

    NaN and Infinity are not JSON; a number whose double is infinite, and an integer of more digits than
    Python converts, are refused too. Of duplicate keys the last wins for the call; the text itself is what
    the journal keeps. Integers keep every digit and lone surrogate escapes are kept, for the codec to tag.
    The value may be of any JSON type: that a tool wants an object is the caller's rule.
    """
    import json

    try:
        return json.loads(text, parse_constant=_not_json, parse_float=_finite)
    except InvalidValue:
        raise
    except RecursionError:
        raise InvalidValue("arguments are nested too deeply") from None
    except (ValueError, UnicodeError) as error:
        raise InvalidValue(f"arguments are not JSON: {error}") from None


def number_text(value: float) -> str:
    """Return a finite double as ECMAScript's Number::toString writes it; raise `InvalidValue` otherwise."""
    if not math.isfinite(value):
        raise InvalidValue(f"canonical JSON: {value} is no JSON number; tag it with to_tree first")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS * 10**point.
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{point - 1:+d}"


def _prepare(tree: Any) -> Any:
    """Return a tree that the C encoder writes canonically: `tree` itself where it already does."""
    kind = type(tree)
    if kind is str or kind is bool or tree is None:
        return tree
    if kind is int:
        return tree if -SAFE_INTEGER_MAX <= tree <= SAFE_INTEGER_MAX else _raw(_rounded(tree))
    if kind is dict:
        return _prepare_object(tree)
    if kind is list or kind is tuple:
        return _prepare_array(tree)
    if kind is float:
        return _raw(number_text(tree))
    return _prepare_other(tree)


def _prepare_object(tree: Mapping[Any, Any]) -> Any:
    changed: dict[str, Any] | None = None
    ascii_keys = True
    for key, value in tree.items():
        if type(key) is not str:
            raise InvalidValue(f"canonical JSON: key {key!r} is no string; tag it with to_tree first")
        if ascii_keys and not key.isascii():
            ascii_keys = False
        ready = _prepare(value)
        if ready is not value:
            if changed is None:
                changed = dict(tree)
            changed[key] = ready
    ready_tree = tree if changed is None else changed
    return ready_tree if ascii_keys else _ordered_object(ready_tree)


def _ordered_object(tree: Mapping[str, Any]) -> msgspec.Raw:
    # The RFC orders keys by UTF-16 code units; the C encoder by code points, which differs beyond the BMP.
    keys = sorted(tree, key=lambda key: key.encode("utf-16-be"))
    return msgspec.Raw(b"{" + b",".join(_encode(key) + b":" + _encode(tree[key]) for key in keys) + b"}")


def _prepare_array(tree: Any) -> Any:
    changed: list[Any] | None = None
    for index, value in enumerate(tree):
        ready = _prepare(value)
        if ready is not value:
            if changed is None:
                changed = list(tree)
            changed[index] = ready
    return tree if changed is None else changed


def _prepare_other(tree: Any) -> Any:
    # Subclasses are written as the plain value they extend; what is no JSON at all is refused.
    for plain in _PLAIN:
        if isinstance(tree, plain):
            return _prepare(plain(tree))
    raise InvalidValue(f"canonical JSON: a {type(tree).__name__} is no JSON value; tag it with to_tree first")


def _rounded(value: int) -> str:
    try:
        return number_text(float(value))
    except OverflowError:
        raise InvalidValue("canonical JSON: an integer is beyond the range of a double") from None


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidValue(f"arguments hold the number {text[:40]}, beyond the range of a double")
    return value


def _not_json(text: str) -> NoReturn:
    raise InvalidValue(f"arguments are not JSON: {text} is no JSON number")
