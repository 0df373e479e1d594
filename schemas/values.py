"""The value codec: Python values to JSON trees and exactly back. "Values never lie."

`schemas/README.md` publishes the matrix of what is written how. Rules of the tree:

* JSON as it is stays as it is; an already plain tree is returned itself, not a copy.
* Everything else becomes a tag: an object whose single key begins with one `$`.
* A user's key that begins with `$` gets one more `$`, so no user data is ever taken for a tag.
* At most VALUE_DEPTH_MAX levels, counted in the tree as recorded (a tag adds its own).

No pickle, and reading runs no constructors of dataclasses: see `value_classes.py` for which classes are found.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from .errors import InvalidValue
from .limits import SAFE_INTEGER_MAX, VALUE_DEPTH_MAX
from .value_classes import name_of, register
from .value_reading import Unrecorded, make_exception, read
from .value_tags import WRITE, Refused, is_odd_text, write_float, write_integer, write_text

__all__ = ["Unrecorded", "plain_text", "register", "tag_tree", "to_tree", "to_tree_lossy", "from_tree"]

Json = Any
_sorting_text: Final = msgspec.json.Encoder(order="deterministic").encode


def to_tree(value: object) -> Json:
    """Return the tree of `value`; raise `InvalidValue` naming path and type where it has no exact one.

    Call it before the effect. A plain value is returned itself: encode the tree before the value changes.
    """
    return _exact.run(value)


def to_tree_lossy(value: object) -> tuple[Json, bool]:
    """Return the tree of a result and whether anything in it is only a marker with its repr. Never raises."""
    writer = _Writer(lossy=True)
    tree = writer.run(value)
    return tree, writer.lost


def tag_tree(tree: Json) -> Json:
    """Return a JSON tree with the leaves that JSON cannot keep tagged, and its `$` keys left as they are.

    For trees that the codec already made, or whose `$` keys are tags. Idempotent. Raises `InvalidValue`.
    """
    return _tagging.run(tree)


def from_tree(tree: Json) -> Any:
    """Return the value that `to_tree` was given. Raises `InvalidValue` with path and type, never guesses.

    Refused: a class that is gone, renamed or changed, an unknown tag, a blob reference (resolve it first).
    """
    try:
        return read(tree)
    except Refused as refused:
        raise _invalid(refused) from None
    except RecursionError:
        raise InvalidValue("value is nested too deeply to be read") from None


def plain_text(text: str) -> str:
    """Return `text` for a field that is text only: U+0000 and lone surrogates become visible `\\uXXXX`."""
    if not is_odd_text(text):
        return text
    return "".join(f"\\u{ord(c):04x}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


class _Writer:
    """One pass over one value. `escape` off leaves `$` keys alone; `lossy` marks what it cannot write."""

    __slots__ = ("escape", "lossy", "lost")

    def __init__(self, *, escape: bool = True, lossy: bool = False) -> None:
        self.escape = escape
        self.lossy = lossy
        self.lost = False

    def run(self, value: object) -> Json:
        try:
            return self.write(value, 0)
        except Refused as refused:
            raise _invalid(refused) from None
        except Exception as error:
            if self.lossy:
                return self._marker(value)
            # Only near the end of the interpreter's own stack: the depth limit comes first elsewhere.
            if isinstance(error, RecursionError):
                raise InvalidValue("value is nested too deeply to be recorded") from None
            raise

    def write(self, value: Any, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            return write_text(value) if is_odd_text(value) else value
        if kind is dict:
            return self._dict(value, depth + 1)
        if kind is list:
            return self._list(value, depth + 1)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else write_integer(value)
        if kind is float:
            return write_float(value)
        if not self.lossy:
            return self._other(value, kind, depth)
        try:
            return self._other(value, kind, depth)
        except Exception:  # noqa: BLE001 - a user's property, __str__ or __eq__ may raise anything; a result still settles
            return self._marker(value)

    def _dict(self, value: dict[Any, Any], depth: int) -> Json:
        if depth > VALUE_DEPTH_MAX:
            return self._too_deep(value)
        changed: dict[str, Any] | None = None
        key: Any = None
        plain_keys = True
        try:
            for key, item in value.items():
                if type(key) is not str or is_odd_text(key):
                    plain_keys = False
                    break
                written = self.write(item, depth)
                if written is not item or (self.escape and key[:1] == "$"):
                    if changed is None:
                        changed = {}
                    changed[key] = written
        except Refused as refused:
            refused.path.append(_step(key))
            raise
        if not plain_keys:
            return self._pairs(value, depth)
        if changed is None:
            return value
        return {self._key(key): changed.get(key, item) for key, item in value.items()}

    def _key(self, key: str) -> str:
        return f"${key}" if self.escape and key[:1] == "$" else key

    def _pairs(self, value: dict[Any, Any], depth: int) -> Json:
        if depth + 2 > VALUE_DEPTH_MAX:
            return self._too_deep(value)
        pairs: list[Json] = []
        for key, item in value.items():
            try:
                pairs.append([self.write(key, depth + 2), self.write(item, depth + 2)])
            except Refused as refused:
                refused.path.append(_step(key))
                raise
        return {"$dict": pairs}

    def _list(self, value: list[Any], depth: int) -> Json:
        if depth > VALUE_DEPTH_MAX:
            return self._too_deep(value)
        changed: list[Any] | None = None
        index = 0
        try:
            for index, item in enumerate(value):
                written = self.write(item, depth)
                if written is not item:
                    if changed is None:
                        changed = list(value)
                    changed[index] = written
        except Refused as refused:
            refused.path.append(f"[{index}]")
            raise
        return value if changed is None else changed

    def _other(self, value: Any, kind: type, depth: int) -> Json:
        write = WRITE.get(kind)
        if write is not None:
            return write(value)
        if kind is tuple:
            return {"$tuple": self._list(list(value), depth + 2)}
        if kind is set or kind is frozenset:
            items = self._list(list(value), depth + 2)
            return {f"${kind.__name__}": sorted(items, key=_sorting_text)}
        if isinstance(value, enum.Enum):
            return self._enum(value, kind, depth)
        if isinstance(value, BaseException):
            return self._exception(value, kind, depth)
        if isinstance(value, msgspec.Struct):
            return self._object("$struct", kind, _fields_of(value, value.__struct_fields__), depth)
        if hasattr(kind, "__dataclass_fields__") and not isinstance(
            value, (dict, list, tuple, str, int, float, bytes, set)
        ):
            import dataclasses

            names = [field.name for field in dataclasses.fields(value)]
            return self._object("$dataclass", kind, _fields_of(value, names), depth)
        if value is msgspec.UNSET:
            return {"$unset": True}
        raise Refused(f"a {_type_name(kind)} cannot be recorded exactly{_advice(value)}")

    def _object(self, tag: str, kind: type, fields: dict[str, Any], depth: int) -> Json:
        return {tag: [_found_name(kind), self._dict(fields, depth + 3)]}

    def _enum(self, value: Any, kind: type, depth: int) -> Json:
        if isinstance(value, enum.Flag):
            return {"$enum": [_found_name(kind), None, self.write(value.value, depth + 2)]}
        return {"$enum": [_found_name(kind), value.name]}

    def _exception(self, value: BaseException, kind: type, depth: int) -> Json:
        name, message = _found_name(kind), _message(value)
        # Built-in OSErrors keep the file name beside their args; __reduce__ has both.
        given = value.__reduce__()[1] if isinstance(value, OSError) and kind.__module__ == "builtins" else value.args
        if _message(make_exception(kind, given)) != message:
            raise Refused(f"the message of a {_type_name(kind)} depends on more than its arguments")
        arguments = self._list(list(given), depth + 3)
        return {"$exception": [name, arguments, self.write(message, depth + 2)]}

    def _too_deep(self, value: object) -> Json:
        if self.lossy:
            return self._marker(value)
        raise Refused(f"nested deeper than {VALUE_DEPTH_MAX} levels; flatten it")

    def _marker(self, value: object) -> Json:
        self.lost = True
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything; a result still settles
            text = f"<{type(value).__name__}: its repr raises>"
        return {"$repr": [_type_name(type(value)), write_text(text)["$str"]]}


_exact: Final = _Writer()
_tagging: Final = _Writer(escape=False)
"""Neither marks anything as lost: they hold nothing of the values they wrote."""


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001 - a user's __str__ may raise anything
        raise Refused(f"the text of a {_type_name(type(error))} raises {type(raised).__name__}") from None


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _fields_of(value: Any, names: Iterable[str]) -> dict[str, Any]:
    extra = set(getattr(value, "__dict__", ())) - set(names)
    if extra:
        raise Refused(f"a {_type_name(type(value))} has attributes beside its fields: {', '.join(sorted(extra))}")
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise Refused(f"a {_type_name(type(value))} lacks its field {missing[0]}")
    return {name: getattr(value, name) for name in names}


def _found_name(kind: type) -> str:
    name = name_of(kind)
    if name is None:
        raise Refused(
            f"class {_type_name(kind)} would not be found again; define it at the top of a module "
            "or pass it to trajlake.schemas.values.register"
        )
    return name


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(value: object) -> str:
    for plain in (dict, list, tuple, str, int, float, bytes, set):
        if isinstance(value, plain):
            return f"; convert it with {plain.__name__}(...)"
    return "; return plain data or a dataclass"


def _invalid(refused: Refused) -> InvalidValue:
    path = "".join(reversed(refused.path)).lstrip(".")
    return InvalidValue(f"value{f' at {path}' if path else ''}: {refused.reason}")
