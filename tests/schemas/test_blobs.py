"""Bulk never enters a frame: what becomes a blob, at which byte, and that it comes back exactly."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from tests.schemas.same import same
from trajlake.schemas.blobs import Blob, blob_hashes, blob_ref, blob_refs, inline, is_blob, offload, offload_payload
from trajlake.schemas.canonical_json import canonical
from trajlake.schemas.errors import InvalidEvent, InvalidValue
from trajlake.schemas.events import (
    ContextBuilt,
    FileChange,
    ModelReplied,
    Payload,
    ProposedCall,
    TaskStarted,
    ToolIntent,
    ToolResult,
    encode_payload,
)
from trajlake.schemas.limits import BLOB_HEAD_CHARS, FRAME_MAX, INLINE_MAX
from trajlake.schemas.values import from_tree, to_tree


def restored(tree: Any, blobs: list[Blob]) -> Any:
    return inline(tree, {blob.sha256: blob.data for blob in blobs}.__getitem__)


@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
def test_a_text_goes_at_the_first_byte_of_utf8_beyond_the_limit(letter: str) -> None:
    width = len(letter.encode())
    fits = letter * (INLINE_MAX // width)
    assert offload(fits) == (fits, [])
    tree, blobs = offload(fits + letter)
    assert is_blob(tree)
    assert tree["bytes"] == len((fits + letter).encode())
    assert tree["kind"] == "text"
    assert tree["head"] == letter * BLOB_HEAD_CHARS
    assert restored(tree, blobs) == fits + letter


def test_a_containers_canonical_text_decides_to_the_byte() -> None:
    for filler in range(4):
        tree = {"a": ["x" * (INLINE_MAX - 12 + filler)], "b": 1.0}
        whole, blobs = offload(tree)
        assert is_blob(whole) == (len(canonical(tree)) > INLINE_MAX), filler
        assert same(restored(whole, blobs), tree)
    zeros = [-0.0] * (INLINE_MAX // 2 - 1)
    assert len(msgspec.json.encode(zeros)) > 2 * INLINE_MAX
    assert offload(zeros) == (zeros, [])
    # 4 bytes of compact text each, 21 of canonical: the shorter text alone would keep them inline.
    numbers = [1e20] * 2_000
    assert len(msgspec.json.encode(numbers)) < INLINE_MAX < len(canonical(numbers))
    assert is_blob(offload(numbers)[0])


def test_the_outermost_value_is_replaced_as_a_whole() -> None:
    tree = {"path": "a.txt", "content": "x" * 50_000, "more": ["y" * 40_000]}
    whole, blobs = offload(tree)
    assert whole["kind"] == "json"
    assert len(blobs) == 1
    assert restored(whole, blobs) == tree


def test_a_json_blob_keeps_order_signs_and_kinds_of_numbers() -> None:
    tree = {"z": [1.0, -0.0, 1, 1e300], "a": "x" * INLINE_MAX, "m": {"b": None, "a": {}}}
    whole, blobs = offload(tree)
    assert same(restored(whole, blobs), tree)


def test_bytes_become_a_blob_of_the_bytes_themselves() -> None:
    data = os.urandom(INLINE_MAX)
    tree, blobs = offload(to_tree(data))
    assert tree["kind"] == "bytes"
    assert "head" not in tree
    assert blobs == [Blob(tree["$blob"], data, "bytes")]
    assert from_tree(restored(tree, blobs)) == data
    small = to_tree(b"x" * 24_000)
    assert offload(small) == (small, [])


def test_text_that_needs_a_tag_comes_back_from_its_blob() -> None:
    value = "\ud800\0" * INLINE_MAX
    tree, blobs = offload(to_tree(value))
    assert from_tree(restored(tree, blobs)) == value


def test_every_json_field_of_a_payload_is_a_candidate_wherever_it_stands() -> None:
    bulk = "x" * (INLINE_MAX + 1)
    reply = ModelReplied(raw=bulk, calls=(ProposedCall(tool="a", arguments=bulk), ProposedCall(tool="b")))
    stored, blobs = offload_payload(reply)
    assert is_blob(stored.raw)
    assert is_blob(stored.calls[0].arguments)
    assert stored.calls[1] is reply.calls[1]
    assert len(blobs) == 2
    built, _ = offload_payload(ContextBuilt(context_hash="h", stored={"a": bulk, "b": "small"}))
    assert is_blob(built.stored["a"])
    assert built.stored["b"] == "small"
    result, _ = offload_payload(ToolResult(action_id="1.0", status="ok", output={"a": bulk}, full_output=[bulk]))
    assert is_blob(result.output)
    assert is_blob(result.full_output)
    assert len(encode_payload(result)) < 2_000


@pytest.mark.parametrize(
    "payload",
    [
        TaskStarted(task="small"),
        ToolIntent(action_id="1.0", tool="t", arguments_hash="h", key="k", effect="read"),
        ToolResult(action_id="1.0", status="ok", output=None),
    ],
)
def test_a_payload_without_bulk_is_returned_itself(payload: Payload) -> None:
    assert offload_payload(payload) == (payload, [])
    assert offload_payload(payload)[0] is payload


def test_64_mib_of_output_and_argument_fit_one_frame_each() -> None:
    huge = "0123456789abcdef" * (4 << 20)
    intent = ToolIntent(action_id="1.0", tool="t", arguments_hash="h", key="k", effect="read", arguments={"a": huge})
    result = ToolResult(action_id="1.0", status="ok", output=huge)
    for payload in (intent, result):
        stored, blobs = offload_payload(payload)
        assert len(encode_payload(stored)) < FRAME_MAX // 100
        assert sum(len(blob.data) for blob in blobs) >= len(huge)


def test_the_same_bulk_twice_has_one_name() -> None:
    bulk = ["x" * INLINE_MAX]
    assert offload(bulk)[1][0].sha256 == offload(list(bulk))[1][0].sha256


def test_user_data_that_looks_like_a_reference_is_data() -> None:
    value = {"$blob": "0" * 64, "bytes": 1, "kind": "text", "head": ""}
    tree = to_tree(value)
    assert not is_blob(tree)
    assert blob_refs(tree) == []
    assert inline(tree, dict[str, bytes]().__getitem__) is tree


def test_references_are_found_in_structs_trees_and_payload_text() -> None:
    bulk = ["x" * INLINE_MAX, 1]
    result = ToolResult(
        action_id="1.0",
        status="ok",
        output=bulk,
        full_output={"log": [offload("y" * 40_000)[0]]},
        changes=(FileChange(path="a", sha256="c" * 64), FileChange(path="b")),
    )
    stored, _ = offload_payload(result)
    text = encode_payload(stored)
    names = [ref.sha256 for ref in blob_refs(stored)]
    assert len(names) == 2
    assert [ref.sha256 for ref in blob_refs(msgspec.json.decode(text))] == names
    assert blob_hashes("ToolResult", text) == {*names, "c" * 64}
    assert blob_hashes("ToolResult", None) == set()
    assert blob_hashes("SourceKept", encode_payload(TaskStarted(task='a "$blob" in prose'))) == set()


def test_a_blob_whose_bytes_changed_is_refused() -> None:
    tree, _ = offload("x" * 40_000)
    with pytest.raises(InvalidEvent, match="the stored bytes hash to"):
        inline(tree, lambda digest: b"y" * 40_000)


def test_a_blob_that_is_missing_raises_what_the_store_raises() -> None:
    tree, _ = offload("x" * 40_000)
    with pytest.raises(FileNotFoundError):
        inline([tree], lambda digest: (_ for _ in ()).throw(FileNotFoundError(digest)))


@pytest.mark.parametrize(
    "tree",
    [
        {"$blob": "../../etc/passwd", "bytes": 1, "kind": "text"},
        {"$blob": "0" * 64, "kind": "text"},
        {"$blob": "0" * 64, "bytes": "1", "kind": "text"},
        {"$blob": "0" * 64, "bytes": 1, "kind": "zip"},
        {"$blob": "A" * 64, "bytes": 1, "kind": "text"},
    ],
)
def test_a_malformed_reference_never_reaches_a_store(tree: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match="malformed blob reference"):
        blob_ref(tree)
    with pytest.raises(InvalidEvent):
        inline(tree, lambda digest: pytest.fail("asked the store"))


def test_what_the_codec_has_not_tagged_is_refused_when_it_is_bulk() -> None:
    for tree in ("\ud800" * INLINE_MAX, ["\ud800" * INLINE_MAX], [float("nan")] * 10_000):
        with pytest.raises(InvalidValue):
            offload(tree)
