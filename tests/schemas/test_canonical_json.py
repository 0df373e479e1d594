"""Canonical JSON beyond its golden vectors: what is refused, and what argument text means."""

from __future__ import annotations

import json
import random
import struct
import sys
from typing import Any

import pytest

from trajlake.schemas.canonical_json import canonical, exact_canonical, number_text, parse_arguments
from trajlake.schemas.errors import InvalidValue


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (float("nan"), "nan is no JSON number"),
        ([float("-inf")], "-inf is no JSON number"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        ({"é\ud800": 1, "b": 2}, "lone surrogate"),
        ({1: 2}, "key 1 is no string"),
        ([b"x"], "a bytes is no JSON value"),
        ({"a": {1}}, "a set is no JSON value"),
        (10**400, "beyond the range of a double"),
    ],
)
def test_what_the_rfc_refuses_is_refused(tree: Any, why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        canonical(tree)


def test_nesting_beyond_the_stack_is_a_clear_error() -> None:
    tree: Any = 1
    for _ in range(sys.getrecursionlimit() * 3):
        tree = [tree]
    with pytest.raises(InvalidValue, match="nested too deeply"):
        canonical(tree)


def test_equal_trees_have_one_text_whatever_the_order_of_their_keys() -> None:
    assert canonical({"b": 1, "a": {"d": 1.0, "c": -0.0}}) == canonical({"a": {"c": 0, "d": 1}, "b": 1.0})


def test_the_tree_is_left_as_it_was() -> None:
    tree = {"b": [1.5, {"é": 2.5, "a": 1}], "a": 1e21}
    before = json.dumps(tree)
    canonical(tree)
    assert json.dumps(tree) == before


def test_subclasses_are_written_as_the_plain_value() -> None:
    class Text(str):
        __slots__ = ()

    assert canonical({"a": Text("x"), "b": (1, 2)}) == b'{"a":"x","b":[1,2]}'


def test_random_doubles_are_shortest_and_read_back_equal() -> None:
    seed = 20261130
    print("seed", seed)
    source = random.Random(seed)
    for _ in range(20_000):
        value = struct.unpack(">d", source.randbytes(8))[0]
        if value - value != 0:
            continue
        text = number_text(value)
        assert float(text) == value
        assert len(text) <= 25
        assert "E" not in text
        assert not text.endswith(".0")


def test_exact_canonical_tells_apart_what_canonical_rounds_together() -> None:
    assert canonical([2**53 + 1]) == canonical([2**53])
    assert exact_canonical([2**53 + 1]) != exact_canonical([2**53])
    assert exact_canonical({"a": [float("nan")]}) == b'{"a":[{"$float":"NaN"}]}'


def test_exact_canonical_takes_tags_and_escaped_keys_for_what_they_are() -> None:
    tree = {"$$ref": {"$bytes": "AA=="}}
    assert exact_canonical(tree) == canonical(tree)


def test_argument_text_gives_every_digit_and_every_escape() -> None:
    assert parse_arguments('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}
    assert parse_arguments('"\\ud800\\u0000"') == "\ud800\0"
    assert parse_arguments(b'{"a":-0.0}')["a"] == 0


def test_of_duplicate_keys_in_argument_text_the_last_wins() -> None:
    assert parse_arguments('{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "{", '{"a": }', "{'a': 1}", '{"a": NaN}', "[Infinity]", "-Infinity", "1e400", "[-1e999]", "{} x"],
        *["nul", "[" * 100_000, "9" * 5000, '{"a": "\n"}', b"\xff"],
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_argument_text_that_is_no_json_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_arguments(text)
    assert "\n" not in str(caught.value)
