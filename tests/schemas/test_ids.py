"""Grammar of ids: what is refused, and with which words."""

from __future__ import annotations

import pytest

from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import (
    GENERATION,
    action_id,
    ancestor_action_id,
    check_tenant,
    check_trajectory_id,
    generation_of,
    parse_action_id,
    token,
    trajectory_key,
)


@pytest.mark.parametrize("tenant", ["default", "A", "a.b-c_D9", "x" * 64, "..."])
def test_a_tenant_of_the_grammar_is_returned(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", " ", "a b", "x" * 65, "a/b", "a\n", "é", "a\0", ".", ".."])
def test_a_tenant_outside_the_grammar_is_refused_with_the_rule(tenant: str) -> None:
    with pytest.raises(InvalidId, match="must be 1-64 characters"):
        check_tenant(tenant)


@pytest.mark.parametrize("name", ["run-1", "../../etc/passwd", "a b", "é" * 128, "😀", "judges/1", "."])
def test_a_trajectory_id_may_be_any_short_printable_text(name: str) -> None:
    assert check_trajectory_id(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty or blank"),
        ("   ", "empty or blank"),
        ("\u3000", "empty or blank"),
        ("x" * 4096, "4096 bytes, at most 256"),
        ("é" * 129, "258 bytes, at most 256"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x85b", "control character"),
        ("a\ud800", "lone surrogate"),
        ("judge/x/1", "kept for judgements"),
    ],
)
def test_a_bad_trajectory_id_is_refused_in_one_short_line(name: str, why: str) -> None:
    with pytest.raises(InvalidId, match=why) as caught:
        check_trajectory_id(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    str(caught.value).encode()


def test_ids_of_judgements_are_for_judgements_only_and_must_say_so() -> None:
    assert check_trajectory_id("judge/v/1/ab", judgement=True) == "judge/v/1/ab"
    with pytest.raises(InvalidId):
        check_trajectory_id("run-1", judgement=True)


def test_the_separator_keeps_tenant_and_id_apart_in_the_key() -> None:
    assert trajectory_key("a", "b.c") != trajectory_key("a.b", "c")
    assert len(trajectory_key("a", "b")) == 16


def test_action_ids_sort_by_number_and_not_by_text() -> None:
    ids = [action_id(100, 0), action_id(9, 10), action_id(9, 2)]
    assert sorted(ids, key=parse_action_id) == ["9.2", "9.10", "100.0"]


def test_an_ancestors_action_is_named_from_each_level_of_branching() -> None:
    assert ancestor_action_id("57.0") == "^1:57.0"
    assert ancestor_action_id("^1:57.0", up=2) == "^3:57.0"
    assert parse_action_id("^3:57.1") == (3, 57, 1)


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "01.0", "1.00", "-1.0", "1.0 ", "^:1.0", f"{2**63}.0"])
def test_what_is_no_action_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match=r"expected SEQUENCE\.INDEX"):
        parse_action_id(text)


def test_tokens_of_a_later_generation_are_higher_than_all_of_an_earlier_one() -> None:
    assert token(1, 1) > token(0, GENERATION - 1)
    assert generation_of(token(7, 3)) == 7
