"""Reading of the value codec: from a tree back to the value. `values.from_tree` is the door to it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from .value_classes import find
from .value_tags import READ, READ_ERRORS, Refused


class Unrecorded(msgspec.Struct, frozen=True):
    """Stands in a decoded result for a value that could not be recorded: its type's name and its repr."""

    type_name: str
    text: str


def read(tree: Any) -> Any:
    """Return the value of `tree`, which is returned itself where nothing in it is tagged. Raises `Refused`."""
    kind = type(tree)
    if kind is dict:
        return _object(tree)
    if kind is list:
        return _array(tree)
    if tree is None or kind is str or kind is int or kind is float or kind is bool:
        return tree
    raise Refused(f"a {kind.__name__} is no JSON; from_tree reads what to_tree made")


def _object(tree: dict[str, Any]) -> Any:
    changed: dict[str, Any] | None = None
    key = ""
    try:
        for key, item in tree.items():
            if key[:1] == "$" and key[1:2] != "$":
                return _tagged(tree, key)
            value = read(item)
            if value is not item or key[:1] == "$":
                if changed is None:
                    changed = {}
                changed[key] = value
    except Refused as refused:
        if key[:1] != "$" or key[1:2] == "$":
            name = _unescaped(key)
            refused.path.append(f".{name}" if name.isidentifier() else f"[{name!r}]")
        raise
    if changed is None:
        return tree
    return {_unescaped(key): changed.get(key, item) for key, item in tree.items()}


def _unescaped(key: str) -> str:
    return key[1:] if key[:2] == "$$" else key


def _array(tree: list[Any]) -> Any:
    changed: list[Any] | None = None
    index = 0
    try:
        for index, item in enumerate(tree):
            value = read(item)
            if value is not item:
                if changed is None:
                    changed = list(tree)
                changed[index] = value
    except Refused as refused:
        refused.path.append(f"[{index}]")
        raise
    return tree if changed is None else changed


def _tagged(tree: dict[str, Any], tag: str) -> Any:
    if "$blob" in tree:
        raise Refused("its bytes are in a blob; put them back with blobs.inline first")
    if len(tree) != 1:
        raise Refused(f"{tag} stands beside other keys; a tag is an object of one key")
    content = tree[tag]
    try:
        leaf = READ.get(tag)
        if leaf is not None:
            return leaf(content)
        holder = _HOLDERS.get(tag)
        if holder is not None:
            return holder(content)
    except READ_ERRORS as error:
        raise Refused(f"{tag} holds no such value: {type(error).__name__}: {error}") from None
    raise Refused(f"{tag} is no tag that this version knows")


def _listed(content: Any) -> list[Any]:
    # Text would be taken apart letter by letter.
    if type(content) is not list:
        raise TypeError("its content is no array")
    return content


def _items(content: Any) -> list[Any]:
    items: list[Any] = _array(_listed(content))
    return items


def _pairs(content: Any) -> dict[Any, Any]:
    return {read(key): read(item) for key, item in map(_listed, _listed(content))}


def _unset(content: Any) -> Any:
    if content is not True:
        raise ValueError("its content is not true")
    return msgspec.UNSET


def _unrecorded(content: Any) -> Unrecorded:
    type_name, text = _listed(content)
    return Unrecorded(READ["$str"](type_name), READ["$str"](text))


def _enum(content: Any) -> Any:
    name = content[0]
    cls = _class(name, "an enum", enum.EnumMeta)
    if content[1] is None:
        return cls(read(content[2]))
    try:
        return cls.__members__[content[1]]
    except KeyError:
        raise Refused(f"{name} has no member {content[1]} any more; keep the old name as an alias") from None


def _exception(content: Any) -> BaseException:
    name, arguments, _ = _listed(content)
    cls: type[BaseException] = _class(name, "an exception")
    if not issubclass(cls, BaseException):
        raise Refused(f"{name} is no exception any more")
    return make_exception(cls, _items(arguments))


def make_exception(cls: type[BaseException], arguments: Sequence[Any]) -> BaseException:
    """Return an exception of `cls` with these `args`. A class of the user's own is made without its `__init__`.

    (It may take other arguments than it keeps.)
    """
    if cls.__module__ == "builtins":
        return cls(*arguments)
    error = cls.__new__(cls, *arguments)
    error.args = tuple(arguments)
    return error


def _dataclass(content: Any) -> Any:
    name, fields = _listed(content)
    import dataclasses

    cls = _class(name, "a dataclass")
    if not dataclasses.is_dataclass(cls):
        raise Refused(f"{name} is no dataclass any more")
    known = {field.name: field for field in dataclasses.fields(cls)}
    values = _fields(name, fields, known)
    for field in known.values():
        if field.name in values:
            continue
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        else:
            raise Refused(f"{name} has a new field {field.name} without a default; give it one")
    value: Any = object.__new__(cast(type, cls))
    for field_name, item in values.items():
        object.__setattr__(value, field_name, item)
    return value


def _struct(content: Any) -> Any:
    name, fields = _listed(content)
    cls = _class(name, "a struct")
    if not issubclass(cls, msgspec.Struct):
        raise Refused(f"{name} is no msgspec struct any more")
    values = _fields(name, fields, dict.fromkeys(cls.__struct_fields__))
    try:
        return cls(**values)
    except TypeError as error:
        raise Refused(f"{name}: {error}; give new fields a default") from None


def _fields(name: str, fields: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    for field in fields:
        if field not in known:
            raise Refused(f"{name} has no field {field} any more, the record holds one")
    values: dict[str, Any] = {}
    for field, item in fields.items():
        try:
            values[field] = read(item)
        except Refused as refused:
            refused.path.append(f".{field}")
            raise
    return values


def _class(name: str, what: str, meta: type = type) -> Any:
    cls = find(name)
    if cls is None:
        raise Refused(
            f"{what} {name} is not there; import its module first, or register the class under this name "
            "(trajlake.schemas.values.register)"
        )
    if not isinstance(cls, meta):
        raise Refused(f"{name} is not {what} any more")
    return cls


_HOLDERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": lambda content: tuple(_items(content)),
    "$set": lambda content: set(_items(content)),
    "$frozenset": lambda content: frozenset(_items(content)),
    "$dict": _pairs,
    "$enum": _enum,
    "$exception": _exception,
    "$dataclass": _dataclass,
    "$struct": _struct,
    "$unset": _unset,
    "$repr": _unrecorded,
}
