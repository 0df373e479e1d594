"""The value codec beyond its published matrix: refusals, classes that went away, results that must settle."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.golden import shapes
from tests.schemas.same import same
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.limits import VALUE_DEPTH_MAX
from trajlake.schemas.value_classes import forget, register
from trajlake.schemas.values import Unrecorded, from_tree, plain_text, tag_tree, to_tree, to_tree_lossy


def through_json(value: object) -> Any:
    return from_tree(msgspec.json.decode(msgspec.json.encode(to_tree(value))))


def nested(levels: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else (value,) if kind is tuple else {"a": value}
    return value


class Pair(NamedTuple):
    a: int
    b: int


class Loud:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_an_already_plain_tree_is_returned_itself_both_ways() -> None:
    tree = {"a": [1, 2.5, None, True, "x", {"é": "😀"}], "b": {}}
    assert to_tree(tree) is tree
    assert from_tree(tree) is tree
    assert tag_tree(tree) is tree


def test_the_value_itself_is_never_changed() -> None:
    value = {"a": [1, (2, 3)], "$b": {"c": b"x"}}
    before = {"a": [1, (2, 3)], "$b": {"c": b"x"}}
    tree = to_tree(value)
    from_tree(tree)
    assert value == before
    assert tree == {"a": [1, {"$tuple": [2, 3]}], "$$b": {"c": {"$bytes": "eA=="}}}


@pytest.mark.parametrize(
    "value",
    [
        {"$blob": "0" * 64, "bytes": 1, "kind": "text", "head": ""},
        {"$tuple": [1, 2]},
        {"$": 1, "$$": 2, "$$$": 3},
        {"$repr": ["a", "b"]},
        {"$dataclass": ["os:system", {"command": "true"}]},
    ],
)
def test_user_data_that_looks_like_a_tag_comes_back_as_data(value: dict[str, Any]) -> None:
    assert same(through_json(value), value)


@pytest.mark.parametrize("digits", [20, 3_999, 4_001, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_any_length_come_back(digits: int, sign: int) -> None:
    value = sign * (1 << int(digits * 3.33))
    assert through_json(value) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"order": [1, {"by": object()}]}, r"value at order\[1\]\.by: a object cannot be recorded exactly"),
        ({"a b": {1: lambda: 0}}, r"value at \['a b'\]\[1\]: a function cannot"),
        (collections.OrderedDict(a=1), r"value: a collections\.OrderedDict .*convert it with dict"),
        ([Pair(1, 2)], r"value at \[0\]: .*Pair .*convert it with tuple"),
        (dt.datetime(2026, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {"utcoffset": lambda s, d: None})()), "time zone"),
        (memoryview(b"a"), "memoryview"),
        (type, "a type cannot be recorded"),
    ],
)
def test_what_has_no_exact_form_is_refused_with_path_and_type(value: object, why: str) -> None:
    with pytest.raises(InvalidValue, match=why) as caught:
        to_tree(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "levels"), [(list, 1), (dict, 1), (tuple, 2)])
def test_depth_is_limited_by_the_levels_of_the_tree(kind: type, levels: int) -> None:
    deepest = VALUE_DEPTH_MAX // levels
    assert same(through_json(nested(deepest, kind)), nested(deepest, kind))
    with pytest.raises(InvalidValue, match="nested deeper than 200 levels"):
        to_tree(nested(deepest + 1, kind))


def test_a_value_that_contains_itself_ends_at_the_depth_limit() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidValue, match="nested deeper"):
        to_tree(loop)
    tree, lossy = to_tree_lossy({"a": 1, "loop": loop})
    assert lossy
    assert tree["a"] == 1


def test_a_class_inside_a_function_is_refused_until_registered() -> None:
    @dataclasses.dataclass
    class Inner:
        a: int

    with pytest.raises(InvalidValue, match="would not be found again; define it at the top of a module"):
        to_tree([Inner(1)])
    register(Inner, "tests:Inner")
    try:
        assert to_tree(Inner(1)) == {"$dataclass": ["tests:Inner", {"a": 1}]}
        assert through_json(Inner(1)) == Inner(1)
    finally:
        forget(Inner)


def test_a_deleted_class_is_refused_by_path_and_name_and_never_guessed() -> None:
    tree = {"vars": [to_tree(shapes.Order("A", 1))]}
    tree["vars"][0]["$dataclass"][0] = "tests.golden.shapes:Gone"
    with pytest.raises(InvalidValue, match=r"value at vars\[0\]: a dataclass tests\.golden\.shapes:Gone is not there"):
        from_tree(tree)


def test_a_class_whose_module_is_not_imported_is_refused_and_not_imported() -> None:
    with pytest.raises(InvalidValue, match="import its module first"):
        from_tree({"$dataclass": ["this_module_is_not_imported:Order", {}]})
    assert "this_module_is_not_imported" not in sys.modules


def test_a_renamed_class_is_read_once_registered_under_its_old_name() -> None:
    tree = {"$dataclass": ["old.place:Order", {"order_id": "A", "cents": 1}]}
    register(shapes.Order, "old.place:Order")
    try:
        assert from_tree(tree) == shapes.Order("A", 1)
    finally:
        forget(shapes.Order)
    with pytest.raises(InvalidValue):
        from_tree(tree)


def test_a_lost_field_is_refused_and_a_new_one_takes_its_default() -> None:
    fields = {"order_id": "A", "cents": 1}
    name = "tests.golden.shapes:Order"
    assert from_tree({"$dataclass": [name, fields]}) == shapes.Order("A", 1, ())
    with pytest.raises(InvalidValue, match="has no field tax any more"):
        from_tree({"$dataclass": [name, {**fields, "tax": 2}]})
    with pytest.raises(InvalidValue, match="new field cents without a default"):
        from_tree({"$dataclass": [name, {"order_id": "A"}]})
    with pytest.raises(InvalidValue, match="has no field z any more"):
        from_tree({"$struct": ["tests.golden.shapes:Point", {"x": 1.0, "y": 2.0, "z": 3.0}]})
    with pytest.raises(InvalidValue, match="give new fields a default"):
        from_tree({"$struct": ["tests.golden.shapes:Point", {"x": 1.0}]})


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"$enum": ["tests.golden.shapes:Colour", "BLUE"]}, "has no member BLUE any more"),
        ({"$enum": ["tests.golden.shapes:Order", "RED"]}, "is not an enum any more"),
        ({"$enum": ["tests.golden.shapes:Access", None, 64]}, "holds no such value"),
        ({"$exception": ["builtins:dict", [], ""]}, "is no exception any more"),
        ({"$exception": ["os:system", ["true"], ""]}, "an exception os:system is not there"),
        ({"$dataclass": ["builtins:dict", {}]}, "is no dataclass any more"),
        ({"$dataclass": ["subprocess:Popen", {"args": "true"}]}, "is no dataclass any more"),
        ({"$struct": ["tests.golden.shapes:Order", {}]}, "is no msgspec struct any more"),
        ({"$later": 1}, r"\$later is no tag that this version knows"),
        ({"a": {"$int": "1", "b": 2}}, r"value at a: \$int stands beside other keys"),
        ({"$int": "0b1"}, "holds no such value"),
        ({"$int": 5}, "holds no such value"),
        ({"$float": "1.5"}, "holds no such value"),
        ({"$bytes": "%%"}, "holds no such value"),
        ({"$datetime": "yesterday"}, "holds no such value"),
        ({"$datetime": ["2026-01-01T00:00:00", "Nowhere/Town", 0]}, "holds no such value"),
        ({"$set": [[1]]}, "holds no such value"),
        ({"$dict": [[1]]}, "holds no such value"),
        ({"$decimal": "x"}, "holds no such value"),
        ({"$tuple": 5}, "holds no such value"),
        ({"$tuple": "ab"}, "its content is no array"),
        ({"$set": "ab"}, "its content is no array"),
        ({"$dict": ["ab"]}, "its content is no array"),
        ({"$exception": ["builtins:ValueError", "ab", ""]}, "its content is no array"),
        ({"$str": "a\\b"}, "holds no such value"),
        ({"$int": "5_000"}, "'5_000' is no integer"),
        ({"$unset": None}, "holds no such value"),
        ({"out": {"$blob": "0" * 64, "bytes": 1, "kind": "bytes"}}, "value at out: its bytes are in a blob"),
        ((1, 2), "a tuple is no JSON"),
    ],
)
def test_a_tree_that_no_value_made_is_refused_and_never_guessed(tree: Any, why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        from_tree(tree)


def test_a_dataclass_with_attributes_beside_its_fields_is_refused() -> None:
    @dataclasses.dataclass
    class Bag:
        a: int

    register(Bag, "tests:Bag")
    bag = Bag(1)
    bag.__dict__["extra"] = 2
    try:
        with pytest.raises(InvalidValue, match="attributes beside its fields: extra"):
            to_tree(bag)
    finally:
        forget(Bag)


def test_reading_a_dataclass_runs_neither_its_constructor_nor_its_checks() -> None:
    calls = []

    @dataclasses.dataclass
    class Checked:
        a: int

        def __post_init__(self) -> None:
            calls.append(self.a)

    register(Checked, "tests:Checked")
    try:
        value = Checked(1)
        assert through_json(value) == value
        assert calls == [1]
    finally:
        forget(Checked)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        KeyError("k"),
        OSError(2, "No such file", "name"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ExceptionGroup("two", [ValueError(1), TypeError("x")]),
        shapes.Declined("A", 5),
        StopIteration(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_come_back_with_type_arguments_and_message(error: Exception) -> None:
    back = through_json(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    if not isinstance(error, ExceptionGroup):
        assert back.args == error.args


def test_an_exception_whose_message_needs_more_than_its_arguments_is_refused() -> None:
    error = shapes.Declined("A", 5)
    assert same(through_json(error), error)
    error = shapes.Located("A", 5)
    with pytest.raises(InvalidValue, match=r"text of a .*Located raises AttributeError"):
        to_tree(error)
    assert to_tree_lossy(error)[1]


def test_a_result_that_cannot_be_recorded_settles_with_its_repr() -> None:
    tree, lossy = to_tree_lossy({"ok": [1, (2,)], "file": Path, "odd": Loud(), "name": "\ud800"})
    assert lossy
    assert tree["ok"] == [1, {"$tuple": [2]}]
    back = from_tree(msgspec.json.decode(msgspec.json.encode(tree)))
    assert back["file"] == Unrecorded("type", repr(Path))
    assert back["odd"].text == "<Loud: its repr raises>"
    assert back["name"] == "\ud800"


def test_a_result_that_can_be_recorded_is_not_called_lossy() -> None:
    assert to_tree_lossy({"a": (1,)}) == ({"a": {"$tuple": [1]}}, False)


@pytest.mark.parametrize("value", [nested(5_000), nested(5_000, tuple), nested(5_000, dict), Loud(), Ellipsis])
def test_recording_a_result_never_raises(value: object) -> None:
    tree, lossy = to_tree_lossy(value)
    assert lossy
    msgspec.json.encode(tree)


def test_a_result_whose_own_code_raises_settles_too() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt if os.environ.get("NEVER_SET") else RuntimeError("no")

    tree, lossy = to_tree_lossy([Hostile("x")])
    assert lossy
    assert tree[0]["$repr"][0].endswith("Hostile")


def test_equal_sets_have_equal_bytes_under_every_hash_seed() -> None:
    code = (
        "import msgspec; from trajlake.schemas.values import to_tree;"
        "print(msgspec.json.encode(to_tree({'b', 'a', 'c', ('x', 1), 7, None})).decode())"
    )
    outputs = set()
    for seed in ("0", "1", "42"):
        run = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=False
        )
        assert run.returncode == 0, run.stderr
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_enums_that_are_also_numbers_or_text_keep_their_class() -> None:
    assert through_json([shapes.Level.HIGH, shapes.Word.YES]) == [shapes.Level.HIGH, shapes.Word.YES]
    assert all(isinstance(item, enum.Enum) for item in through_json([shapes.Level.HIGH, shapes.Word.YES]))


def test_text_only_fields_show_what_json_cannot_hold() -> None:
    assert plain_text("a\0\ud800é") == "a\\u0000\\ud800é"
    assert plain_text("plain \\u0000") == "plain \\u0000"
