"""Any value of the matrix, nested any way, comes back exactly through JSON text and through blobs."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import shapes
from tests.schemas.same import same
from trajlake.schemas.blobs import inline, is_blob, offload
from trajlake.schemas.canonical_json import canonical, exact_canonical, parse_arguments
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.keys import arguments_hash
from trajlake.schemas.limits import INLINE_MAX
from trajlake.schemas.value_reading import _HOLDERS
from trajlake.schemas.value_tags import READ
from trajlake.schemas.values import from_tree, tag_tree, to_tree, to_tree_lossy

any_text = st.text(st.characters(blacklist_categories=())) | st.sampled_from(
    ["$", "$$", "$int", "$blob", "\0", "\\u0000"]
)
zones = st.none() | st.just(dt.UTC) | st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")])
offsets = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone)
hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    any_text,
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes(timezones=zones),
    st.datetimes(timezones=offsets),
    st.times(timezones=st.none() | offsets),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*shapes.Colour, *shapes.Level, *shapes.Word, shapes.Access.READ | shapes.Access.WRITE]),
    st.builds(shapes.Order, any_text, st.integers(), st.tuples(any_text)),
)
leaves = st.one_of(
    hashable,
    st.floats(),
    st.complex_numbers(),
    st.binary().map(bytearray),
    st.just(Decimal("NaN")),
    st.builds(shapes.Point, st.floats(), st.floats()),
    st.builds(ValueError, any_text, st.integers()),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner),
        st.dictionaries(any_text, inner),
        st.dictionaries(hashable, inner),
        st.lists(inner).map(tuple),
        st.sets(hashable),
        st.frozensets(hashable),
    )


values = st.recursive(leaves, containers, max_leaves=20)
json_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text
json_trees = st.recursive(json_leaves, lambda inner: st.lists(inner) | st.dictionaries(any_text, inner), max_leaves=30)


@settings(max_examples=150, deadline=None)
@given(values)
def test_a_value_comes_back_exactly_through_its_json_text(value: Any) -> None:
    tree = to_tree(value)
    text = msgspec.json.encode(tree)
    assert b"\\u0000" not in text.replace(b"\\\\", b"")
    assert same(from_tree(msgspec.json.decode(text)), value)
    assert same(from_tree(json.loads(text)), value)


@settings(max_examples=100, deadline=None)
@given(values)
def test_a_recordable_result_is_written_as_an_argument_would_be(value: Any) -> None:
    tree, lossy = to_tree_lossy(value)
    assert not lossy
    assert same(tree, to_tree(value))


@settings(max_examples=100, deadline=None)
@given(values)
def test_the_hash_of_a_value_does_not_depend_on_the_way_it_took(value: Any) -> None:
    tree = to_tree(value)
    again = msgspec.json.decode(msgspec.json.encode(tree))
    assert tag_tree(tree) is tree
    assert exact_canonical(tree) == canonical(tree) == canonical(again)
    assert arguments_hash(tree) == arguments_hash(again)


@settings(max_examples=100, deadline=None)
@given(values)
def test_bulk_comes_back_exactly_through_its_blob(value: Any) -> None:
    tree = to_tree([value, "x" * INLINE_MAX])
    stored, blobs = offload(tree)
    assert is_blob(stored)
    text = msgspec.json.encode(stored)
    back = inline(msgspec.json.decode(text), {blob.sha256: blob.data for blob in blobs}.__getitem__)
    assert same(from_tree(back)[0], value)


tags = st.sampled_from([*READ, *_HOLDERS, "$blob", "$later"])
names = st.sampled_from(["tests.golden.shapes:Order", "builtins:ValueError", "os:system", "tests.golden.shapes:Colour"])
hostile = st.recursive(
    json_leaves | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tags, inner, min_size=1, max_size=2),
    max_leaves=15,
)


@settings(max_examples=300, deadline=None)
@given(hostile)
def test_a_hostile_tree_gives_a_value_or_one_line_and_nothing_else(tree: Any) -> None:
    refusal = ""
    try:
        from_tree(tree)
    except InvalidValue as error:
        refusal = str(error)
    assert "\n" not in refusal


@settings(max_examples=100, deadline=None)
@given(json_trees)
def test_argument_text_that_a_model_emits_gives_the_value_it_says(tree: Any) -> None:
    assert same(parse_arguments(json.dumps(tree)), tree)
    assert same(from_tree(to_tree(tree)), tree)
