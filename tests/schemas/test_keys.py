"""Idempotency keys: what makes two intentions the same, and what must not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trajlake.schemas.errors import InvalidId, InvalidValue
from trajlake.schemas.keys import arguments_hash, idempotency_key, occurrence, same_as_key
from trajlake.schemas.values import to_tree


def key(**changes: Any) -> str:
    parts: dict[str, Any] = {"tenant": "t", "trajectory_id": "r", "step": "pay", "n": 0, "tree": {"cents": 10}}
    parts |= changes
    return idempotency_key(parts["tenant"], parts["trajectory_id"], parts["step"], parts["n"], parts["tree"])


def test_every_part_of_a_key_changes_it() -> None:
    keys = [key(), key(tenant="u"), key(trajectory_id="s"), key(step="send"), key(n=1), key(tree={"cents": 11})]
    assert len(set(keys)) == len(keys)


def test_parts_cannot_be_shifted_into_each_other() -> None:
    assert key(tenant="ab", trajectory_id="c") != key(tenant="a", trajectory_id="bc")
    assert key(step='pay",0') != key(step="pay")
    assert key(step="same_as", n=0, tree={}) != same_as_key("t", "r", "pay", {})


def test_the_order_of_arguments_and_the_kind_of_equal_numbers_do_not_matter() -> None:
    assert key(tree={"a": 1, "b": 2}) == key(tree={"b": 2.0, "a": 1})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (2**53, 2**53 + 1),
        ("a\0", "a\\u0000"),
        ("\ud800", "\\ud800"),
        (b"a", "YQ=="),
        ((1, 2), [1, 2]),
        (None, ""),
        ({}, []),
        (True, 1),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_different_arguments_never_share_a_hash(left: Any, right: Any) -> None:
    assert arguments_hash(to_tree({"a": left})) != arguments_hash(to_tree({"a": right}))


def test_user_data_that_looks_like_a_tag_does_not_share_the_hash_of_the_tagged_value() -> None:
    assert arguments_hash(to_tree({"$int": str(2**60)})) != arguments_hash(to_tree(2**60))


def test_an_absent_argument_differs_from_null() -> None:
    assert arguments_hash({}) != arguments_hash({"a": None})


def test_a_value_that_is_no_tree_of_the_codec_is_refused() -> None:
    with pytest.raises(InvalidValue):
        arguments_hash({"a": object()})


def test_a_deliberate_repeat_counts_on_and_a_resume_does_not() -> None:
    first, second = ("5.0", "pay", "h"), ("9.0", "pay", "h")
    assert occurrence([first], "5.0", "pay", "h") == 0
    assert occurrence([first, second], "9.0", "pay", "h") == 1
    assert occurrence([first, second], "5.0", "pay", "h") == 0


def test_actions_count_in_the_numeric_order_of_ids_whatever_the_order_of_the_log() -> None:
    actions = [(f"{sequence}.{index}", "pay", "h") for sequence in (9, 10, 100) for index in (2, 10)]
    expected = {action[0]: n for n, action in enumerate(actions)}
    for order in itertools.permutations(actions):
        assert {own: occurrence(order, own, "pay", "h") for own in expected} == expected


def test_other_steps_and_other_arguments_do_not_count() -> None:
    actions = [("1.0", "pay", "h"), ("2.0", "send", "h"), ("3.0", "pay", "g")]
    assert occurrence(actions, "4.0", "pay", "h") == 1


def test_actions_of_an_ancestor_come_before_those_of_a_branch() -> None:
    actions = [("^1:57.0", "pay", "h"), ("^2:90.0", "pay", "h"), ("3.0", "pay", "h")]
    assert occurrence(actions, "3.0", "pay", "h") == 2
    assert occurrence(actions, "^1:57.0", "pay", "h") == 1


def test_an_id_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidId):
        occurrence([], "five", "pay", "h")


def test_a_business_identity_is_all_that_counts_where_it_is_declared() -> None:
    identity = {"payee": "DE02", "amount": "10.00", "invoice": "7"}
    assert same_as_key("t", "r", "pay", identity) == same_as_key("t", "r", "pay", dict(reversed(identity.items())))
    assert same_as_key("t", "r", "pay", identity) != same_as_key("t", "r", "pay", {**identity, "invoice": "8"})
    assert same_as_key("t", "r", "pay", identity) != same_as_key("t", "r", "refund", identity)
