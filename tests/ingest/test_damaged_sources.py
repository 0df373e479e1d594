"""Damage, for every format of this half: each kind has a stated outcome, and one bad file stops no other.

| damage | documents | lines |
|---|---|---|
| empty, blank, wrong format | refused with one line | refused with one line |
| cut short | refused with its line and column | the torn last line is reported, the rest imported |
| a corrupt line | | reported with its number and bytes, the rest imported |
| nested 30,000 deep | refused with one line | that line reported, the rest imported |
| lone surrogate, U+0000, bytes that are no UTF-8 | come back exactly | come back exactly |
| a repeated key | the last counts, the raw text keeps both | the same |
| a session id that is a path | refused with its place, or that record alone | that record alone |
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.conftest import Command
from tests.ingest.reading import Read, all_arguments, read
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.contract import BadSource
from trajlake.ingest.formats.detect import detect
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import MessageAdded, ModelReplied, ToolResult
from trajlake.schemas.values import from_tree

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "ARGUMENTS"}}
SAID = {"role": "assistant", "content": "TEXT", "tool_calls": [CALL]}
MESSAGES = [{"role": "user", "content": "go"}, SAID]


def _v0(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": "2026-01-01T00:00:00", "source": "agent", **more}


def _v1(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": "2026-01-01T00:00:00", "source": "agent", "kind": kind, **more}


def _completion() -> dict[str, Any]:
    return {"id": "r", "model": "m", "choices": [{"message": SAID, "finish_reason": "stop"}]}


def _span(parent: str = "") -> dict[str, Any]:
    output = [{"role": "assistant", "parts": [{"type": "text", "content": "TEXT"},
               {"type": "tool_call", "id": "c1", "name": "f", "arguments": "ARGUMENTS"}]}]  # fmt: skip
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(MESSAGES[:1]),
        "gen_ai.output.messages": output,
    }
    return {"name": "chat", "context": {"trace_id": TRACE, "span_id": "2"}, "parent_id": parent, "attributes": told,
            "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:01Z"}  # fmt: skip


def _langfuse(trace: str = "t1") -> dict[str, Any]:
    row = {"id": "o1", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z", "input": MESSAGES[:1], "output": SAID}
    return {"trace": {"id": trace, "projectId": "p"}, "observations": [row]}


def _tau2(name: str = "sim-1") -> dict[str, Any]:
    return {"id": name, "task_id": "t", "termination_reason": "user_stop", "messages": MESSAGES}


# format and shape -> a small whole source; TEXT and ARGUMENTS are what the tests put something strange for.
DOCUMENTS: dict[str, tuple[str, Any]] = {
    "swe-agent": ("swe-agent", {"history": [{**one, "agent": "main"} for one in MESSAGES]}),
    "mini-swe-agent": ("mini-swe-agent", {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": MESSAGES}),
    "openhands v0": ("openhands", [_v0(0, action="message", args={"content": "go"}) | {"source": "user"},
                                   _v0(1, action="run", args={},
                                       tool_call_metadata={"model_response": _completion()})]),
    "tau2-bench": ("tau2-bench", {"timestamp": "x", "info": {}, "tasks": [], "simulations": [_tau2()]}),
    "otlp": ("otlp", [_span()]),
    "langfuse": ("langfuse", _langfuse()),
}  # fmt: skip
USER = _v1(0, "MessageEvent", llm_message={"role": "user", "content": "go"}) | {"source": "user"}
ANSWER = _v1(1, "MessageEvent", llm_message=MESSAGES[1], llm_response_id="r1")
LINES: dict[str, tuple[str, list[Any]]] = {
    "openhands v1": ("openhands", [USER, ANSWER]),
    "openhands runs": ("openhands", [{"instance_id": f"i{n}", "git_patch": "", "history": DOCUMENTS["openhands v0"][1]}
                                     for n in range(2)]),
    "otlp lines": ("otlp", [_span(), _span() | {"context": {"trace_id": TRACE[::-1], "span_id": "2"}}]),
    "langfuse lines": ("langfuse", [_langfuse("t1"), _langfuse("t2")]),
    "tau2 lines": ("tau2-bench", [_tau2("s1"), _tau2("s2")]),
}  # fmt: skip


STRANGERS = {
    "empty": b"", "blank": b"  \n\n", "object": b"{}", "array": b"[]", "null": b"null", "binary": b"\x00\x01\x02",
    "lines": b'{"a": 1}\n{"b": 2}\n', "text": b"plain text", "deep array": b"[" * 30_000 + b"]" * 30_000,
    "deep object": b'{"x":' * 30_000,
}  # fmt: skip


def written(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def lines_of(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def of(data: bytes, name: str = "x.json") -> Source:
    return Source.of_bytes(data, name)


@pytest.mark.parametrize("shape", DOCUMENTS)
def test_the_small_documents_are_whole(shape: str) -> None:
    name, value = DOCUMENTS[shape]
    got = read(name, of(written(value)))
    assert (len(got.of(ModelReplied)), all_arguments(got)) == (1, ["ARGUMENTS"])
    assert detect(of(written(value))).name == name
    assert check(importer(name), of(written(value))) == []


@pytest.mark.parametrize("name", sorted({one for one, _ in DOCUMENTS.values()}))
@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS)
def test_what_is_empty_or_another_format_is_refused_with_one_line(name: str, data: bytes) -> None:
    with pytest.raises(BadSource) as refused:
        read(name, of(data, "sub/x.json"))
    assert "sub/x.json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("shape", DOCUMENTS)
def test_a_document_cut_short_is_refused_with_its_place(shape: str) -> None:
    name, value = DOCUMENTS[shape]
    with pytest.raises(BadSource, match=r"line \d+ column \d+.*may be cut short"):
        read(name, of(written(value)[:-20]))


@pytest.mark.parametrize("shape", DOCUMENTS)
def test_a_document_nested_too_deeply_is_refused_with_one_line(shape: str) -> None:
    name, value = DOCUMENTS[shape]
    deep = written(value).replace(b'"TEXT"', b"[" * 30_000 + b"]" * 30_000)
    with pytest.raises(BadSource, match="too deeply"):
        read(name, of(deep))


@pytest.mark.parametrize("shape", [*DOCUMENTS, "openhands v1"])
def test_strange_characters_and_repeated_keys_come_back_exactly(shape: str) -> None:
    name, value = DOCUMENTS[shape] if shape in DOCUMENTS else LINES[shape]
    data = lines_of(value) if shape in LINES else written(value)
    data = data.replace(b"TEXT", rb"\ud83d \u0000 ").replace(b'\\u0000 "', b'\\u0000 \xff"')
    data = data.replace(b'"go"', b'"first", "content": "second"') if b'"content": "go"' in data else data
    got = read(name, of(data))
    assert [from_tree(one.wire)["content"] if one.wire else json.loads(from_tree(one.raw))["content"]
            for one in got.of(ModelReplied)] == ["\ud83d \0 \udcff"]  # fmt: skip
    assert check(importer(name), of(data)) == []


@pytest.mark.parametrize("shape", LINES)
def test_a_corrupt_and_a_torn_line_are_reported_and_the_rest_is_imported(shape: str) -> None:
    name, values = LINES[shape]
    good = [json.dumps(value).encode() for value in values]
    corrupt = [b'{"broken": ', b'{"deep":' + b"[" * 30_000 + b"]" * 30_000 + b"}"]
    data = b"\n".join([good[0] + b"\r", *corrupt, *good[1:], good[0][:40]])
    got, whole = read(name, of(data, "x.jsonl"), ended=True), read(name, of(lines_of(values), "x.jsonl"), ended=True)
    assert len(got.of(ModelReplied)) == len(whole.of(ModelReplied))
    assert [problem.partition(":")[0] for problem in got.loss.problems] == [
        "line 2",
        "line 3",
        f"line {len(values) + 3}",
    ]
    assert (got.loss.skipped["corrupt line"], got.loss.skipped["torn last line"]) == (2, 1)
    ranges = [re.search(r"left out: bytes (\d+) to (\d+)$", problem) for problem in got.loss.as_report()["problems"]]
    assert [data[int(found[1]) : int(found[2])] for found in ranges if found] == corrupt


@pytest.mark.parametrize("shape", ["openhands runs", "otlp lines", "langfuse lines", "tau2 lines"])
def test_a_record_whose_id_is_a_path_costs_itself_only(shape: str) -> None:
    name, values = LINES[shape]
    hostile = json.dumps(values[0]).replace(TRACE, "../../x").replace('"i0"', '"../../x"').replace('"t1"', '"../../x"')
    hostile = hostile.replace('"s1"', '"../../x"')
    got = read(name, of(hostile.encode() + b"\n" + lines_of(values[1:]), "x.jsonl"))
    assert len({item.trajectory_id for item in got.items}) == 1
    assert "looks like a path" in got.loss.problems[0]


@pytest.mark.parametrize(("name", "hostile"), [("swe-agent", "environment"), ("mini-swe-agent", "instance_id")])
def test_a_document_whose_id_is_a_path_is_refused_with_its_place(name: str, hostile: str) -> None:
    value = {**DOCUMENTS[name][1], hostile: "../../etc/passwd"}
    with pytest.raises(BadSource, match=f"/{hostile}.*looks like a path"):
        read(name, of(written(value)))


@pytest.mark.parametrize("shape", DOCUMENTS)
def test_a_record_of_no_known_kind_inside_is_kept_or_left_out_by_name(shape: str) -> None:
    name, value = DOCUMENTS[shape]
    text = json.dumps(value)
    inside = {"swe-agent": '"history": [', "mini-swe-agent": '"messages": [', "tau2-bench": '"messages": [',
              "langfuse": '"observations": ['}.get(shape, "[")  # fmt: skip
    changed = text.replace(inside, f"{inside}17, ", 1)
    got = _read_or_refused(name, changed.encode())
    if got is not None:
        assert len(got.of(ModelReplied)) == 1
        assert sum(got.loss.kept.values()) + sum(got.loss.skipped.values()) >= 1


def _read_or_refused(name: str, data: bytes) -> Read | None:
    try:
        return read(name, of(data))
    except BadSource:
        return None  # the first record decides what a list is


def test_images_and_large_outputs_stay_whole() -> None:
    url = "data:image/png;base64," + "A" * 1_500_000
    image = {
        "role": "user",
        "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}],
    }
    answer = {"role": "tool", "tool_call_id": "c1", "content": "x" * 868_167}
    value = {"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": [image, SAID, answer]}
    got = read("mini-swe-agent", of(written(value)))
    assert got.of(MessageAdded)[0].wire["content"][1]["image_url"]["url"] == url
    assert [len(one.output) for one in got.of(ToolResult)] == [868_167]
    assert check(importer("mini-swe-agent"), of(written(value))) == []


def test_bad_files_among_good_ones_stop_none(trajlake: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, (shape, (_, value)) in enumerate(DOCUMENTS.items()):
        stem = shape.replace(" ", "-")
        (folder / f"{number}-{stem}.json").write_bytes(written(value))
        (folder / f"{number}-{stem}-cut.json").write_bytes(written(value)[:-20])
    for number, (shape, (_, values)) in enumerate(LINES.items()):
        (folder / f"l{number}-{shape.replace(' ', '-')}.jsonl.gz").write_bytes(gzip.compress(lines_of(values)))
    (folder / "bad.eval").write_bytes(b"PK\x03\x04" + b"samples/" * 20)
    (folder / "empty.json").write_bytes(b"")
    (folder / "bomb.json.gz").write_bytes(gzip.compress(b"[" + b" " * 300_000_000 + b"]", 9))
    done = trajlake("import", "auto", str(folder), "--journal", "root", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 2
    imported = [one for one in report["files"] if one["report"] and not one["error"]]
    assert len(imported) == len(DOCUMENTS) + len(LINES)
    assert report["total"]["refused"] >= len(DOCUMENTS) + 1
    assert done.stderr.count("Traceback") == 0


def test_a_file_whose_name_is_no_utf_8_is_imported_under_an_escaped_one(tmp_path: Path, trajlake: Command) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    chat = json.dumps([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}])
    (folder / "before.json").write_text(chat)
    (folder / os.fsdecode(b"n\xffm.json")).write_text(chat.replace("2", "3"))
    first, again = (trajlake("import", "openai-chat", "sessions", "--journal", "j", "--json") for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert [one["name"] for one in json.loads(first.stdout)["files"]] == [
        "sessions/before.json",
        "sessions/n\\xffm.json",
    ]
    assert [one["unchanged"] for one in json.loads(again.stdout)["files"]] == [True, True]
    assert [one["report"]["name"] for one in json.loads(again.stdout)["files"]] == ["before.json", "n\\xffm.json"]
