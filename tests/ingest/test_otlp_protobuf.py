"""OTLP as protobuf gives what the same traces give as JSON; damage ends it where it stands.

The encoder here is the tests' own; the reader was also compared once with what `opentelemetry-proto` 1.x writes.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import Read, all_arguments, read
from tests.ingest.test_trace_formats import AGENT, FLAT, STRUCTURED, batch, document, span
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.contract import BadSource
from trajlake.ingest.formats.detect import detect
from trajlake.ingest.formats.otlp_protobuf import looks_like_traces, messages
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import ModelReplied, ToolResult

PAIR = {"key": (1, "text"), "value": (2, "value")}
VALUE: dict[str, Any] = {
    "stringValue": (1, "text"), "boolValue": (2, "int"), "intValue": (3, "int"), "doubleValue": (4, "double"),
    "arrayValue": (5, {"values": (1, "value")}), "kvlistValue": (6, {"values": (1, PAIR)}),
}  # fmt: skip
SPAN = {
    "traceId": (1, "hex"), "spanId": (2, "hex"), "parentSpanId": (4, "hex"), "name": (5, "text"), "kind": (6, "int"),
    "startTimeUnixNano": (7, "fixed"), "endTimeUnixNano": (8, "fixed"), "attributes": (9, PAIR),
    "status": (15, {"message": (2, "text"), "code": (3, "int")}),
}  # fmt: skip
SCOPE_SPANS = {"scope": (1, {"name": (1, "text")}), "spans": (2, SPAN)}
TRACES = {"resourceSpans": (1, {"resource": (1, {"attributes": (1, PAIR)}), "scopeSpans": (2, SCOPE_SPANS)})}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def encoded(tree: dict[str, Any], shape: dict[str, Any]) -> bytes:
    out = b""
    for name, value in tree.items():
        number, kind = shape[name]
        for one in value if isinstance(value, list) else [value]:
            out += field(number, kind, one)
    return out


def field(number: int, kind: Any, value: Any) -> bytes:
    if kind == "int":
        return varint(number << 3) + varint(int(value))
    if kind in ("fixed", "double"):
        packed = struct.pack("<d", value) if kind == "double" else struct.pack("<Q", int(value))
        return varint(number << 3 | 1) + packed
    if kind == "text":
        data = value.encode()
    elif kind == "hex":
        data = bytes.fromhex(value)
    else:
        data = encoded(value, VALUE if kind == "value" else kind)
    return varint(number << 3 | 2) + varint(len(data)) + data


def typed(tree: Any) -> Any:
    """The same tree with floats as `doubleValue`."""
    if isinstance(tree, list):
        return [typed(one) for one in tree]
    if isinstance(tree, dict):
        made = {key: typed(one) for key, one in tree.items()}
        return {"doubleValue": made["stringValue"]} if isinstance(made.get("stringValue"), float) else made
    return tree


def protobuf(tree: dict[str, Any]) -> bytes:
    return encoded(tree, TRACES)


def framed(*trees: dict[str, Any]) -> bytes:
    return b"".join(struct.pack(">I", len(data)) + data for data in map(protobuf, trees))


def said(got: Read) -> list[Any]:
    return [
        (type(item.payload).__name__, item.turn, item.recorded_at, getattr(item.payload, "item_hash", None))
        for item in got.items
    ]


@pytest.mark.parametrize("told", [STRUCTURED, FLAT])
def test_protobuf_gives_what_the_same_traces_give_as_json(told: list[dict[str, Any]]) -> None:
    tree = typed(batch(span(2, 1, told[0]), span(3, 3, told[1], status={"message": "", "code": 1}), AGENT))
    one, other = read("otlp", protobuf(tree)), read("otlp", document(tree))
    assert said(one) == said(other)
    assert len(one.of(ModelReplied)) == 2
    assert all_arguments(one) == all_arguments(other) != []
    assert one.usage() == other.usage()


def test_a_file_of_the_collector_holds_messages_behind_their_lengths(tmp_path: Path) -> None:
    spans = [span(2, 1, FLAT[0]), span(3, 3, FLAT[1]), AGENT]
    path = tmp_path / "traces.pb"
    path.write_bytes(framed(*(batch(one) for one in spans)))
    source = Source.of_path(str(path))
    assert detect(source).name == "otlp"
    got = read("otlp", path)
    assert len(got.of(ModelReplied)) == 2
    assert all(item.payload.place.startswith("message ") for item in got.items if getattr(item.payload, "place", ""))
    waiting = read("otlp", framed(batch(spans[0])))
    assert (len(waiting.items), waiting.loss.held_back) == (0, {"span": 1})
    assert check(importer("otlp"), source) == []


def test_numbers_and_texts_are_those_of_otlp_json() -> None:
    told = {"low": -5, "deep": {"a": [True, "x"]}}
    tree = batch(span(2, 1, told))
    tree["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append(
        {"key": "d", "value": {"doubleValue": 0.5}}
    )
    (made,) = messages(protobuf(tree))
    assert isinstance(made, bytes)
    spans = json.loads(made)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert spans == tree["resourceSpans"][0]["scopeSpans"][0]["spans"]


def test_a_torn_message_leaves_those_before_it_and_a_torn_post_is_refused() -> None:
    spans = [span(2, 1, FLAT[0]), span(3, 3, FLAT[1]), AGENT]
    whole = framed(*(batch(one) for one in spans))
    for cut in (1, 3, 40):
        got = read("otlp", whole[:-cut], ended=True)
        assert len(got.of(ModelReplied)) == 2
        assert got.loss.skipped == {"torn last message": 1}
        assert "cut short" in got.loss.problems[0]
    with pytest.raises(BadSource, match="longer than its message"):
        read("otlp", protobuf(batch(*spans))[:-1])


def test_what_is_no_protobuf_of_traces_is_not_taken_for_it() -> None:
    assert looks_like_traces(protobuf(batch(AGENT)))
    for head in (b"", b"\n", b"\n\n\n{}", b'\n{"a":1}', b"\x0a\x05hello", b"{}", b"\0\0\0\x02\x0a\x00", b"\x0a\xff"):
        assert not looks_like_traces(head), head


def test_results_of_tools_are_there_too() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.call.result": "seen"}  # fmt: skip
    tree = typed(batch(span(2, 1, STRUCTURED[0]), span(4, 2, tool), span(3, 3, STRUCTURED[1]), AGENT))
    assert len(read("otlp", protobuf(tree)).of(ToolResult)) == len(read("otlp", document(tree)).of(ToolResult)) == 1
