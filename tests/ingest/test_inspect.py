"""Inspect logs: every layout gives equal events, real files are exact, damage stops one sample and no other."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.ingest import eval_writer
from tests.ingest.reading import Read, all_arguments, read
from trajlake.ingest.formats.conformance import by_trajectory, check
from trajlake.ingest.formats.contract import BadSource, Item
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Compacted,
    ContextBuilt,
    MessageAdded,
    ModelReplied,
    TaskEnded,
    TaskStarted,
    ToolResult,
)
from trajlake.schemas.values import from_tree


def members_of(path: Path) -> dict[str, Any]:
    """The JSON members of an archive, read without our code."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for info in archive.infolist():
            if info.compress_type != 93:
                found[info.filename] = json.loads(archive.read(info))
                continue
            raw.seek(info.header_offset + 26)
            name_size, extra_size = struct.unpack("<HH", raw.read(4))
            raw.seek(name_size + extra_size, 1)
            packed = zstandard.ZstdDecompressor().decompressobj().decompress(raw.read(info.compress_size))
            found[info.filename] = json.loads(packed)
    return found


def source(data: bytes, name: str = "log.eval") -> Source:
    return Source.of_bytes(data, name)


def events_of(got: Read) -> dict[str, list[Item]]:
    return by_trajectory(got.items)


# -- a run of our own

LONG = "x" * 120
HASH = "0123456789abcdef0123456789abcdef"


def event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"event": kind, "uuid": f"e{number}", "timestamp": f"2026-01-01T00:00:{number:02}+00:00", **more}


def assistant(number: int, text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {"id": f"a{number}", "role": "assistant", "content": text}
    if calls:
        made["tool_calls"] = [
            {"id": name, "function": "bash", "arguments": told, "type": "function"} for name, told in calls
        ]
    return made


def model(number: int, refs: list[list[int]], message: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "input_tokens_cache_read": 90, "input_tokens_cache_write": 5, "output_tokens": 7}
    output = {"model": "m-1", "choices": [{"message": message, "stop_reason": "tool_calls"}], "usage": usage}
    return event("model", number, model="m", input=[], input_refs=refs, tools=[], config={"temperature": 0.5},
                 output=output, **more)  # fmt: skip


def tool_message(number: int, call_id: str, text: str) -> dict[str, Any]:
    return {"id": f"t{number}", "role": "tool", "content": text, "tool_call_id": call_id, "function": "bash"}


def log(**more: Any) -> dict[str, Any]:
    user = {"id": "u", "role": "user", "content": f"attachment://{HASH}"}
    one, two = assistant(1, "look", ("c1", {"n": 1.0}), ("c2", {})), assistant(2, "done")
    results = [tool_message(1, "c1", "one"), tool_message(2, "c2", "refused")]
    approval = {"id": "c1", "function": "bash", "arguments": {"n": 1.0}}
    events = [
        event("span_begin", 0, id="s0", type="solver", name="generate"),
        model(1, [[0, 1]], one),
        event("approval", 2, call=approval, approver="human", decision="approve", message="", explanation="fine"),
        event("tool", 3, id="c1", function="bash", arguments={"n": 1.0}, result="one", message_id="t1"),
        event("approval", 4, call={**approval, "id": "c2"}, approver="auto", decision="reject", message=""),
        event("tool", 5, id="c2", function="bash", arguments={}, result="", message_id="t2",
              error={"type": "approval", "message": "refused"}),
        event("compaction", 6, type="summary", tokens_before=900, tokens_after=90, source="inspect"),
        model(7, [[0, 1], [4, 5]], two),
        event("score", 8, score={"value": float("nan")}),
        event("hologram", 9, payload=[1, {"a": None}]),
    ]  # fmt: skip
    summary = {"id": "sum", "role": "user", "content": "so far: one"}
    sample = {"id": "s1", "epoch": 1, "input": f"attachment://{HASH}", "target": "x", "uuid": "UUID1",
              "messages": [user, summary, two], "output": {}, "scores": {"match": {"value": "C"}},
              "metadata": {"difficulty": 3}, "store": {}, "events": events, "attachments": {HASH: LONG},
              "events_data": {"messages": [user, one, *results, summary], "calls": []},
              "completed_at": "2026-01-01T00:01:00+00:00"}  # fmt: skip
    return {
        "version": 2, "status": "success",
        "eval": {"eval_id": "EV1", "task": "t", "model": "m", "created": "2026-01-01T00:00:00+00:00"},
        "plan": {"steps": []}, "results": {"total_samples": 1}, "reductions": [{"scorer": "match"}],
        "stats": {"completed_at": "2026-01-01T00:02:00+00:00"}, "samples": [sample], **more,
    }  # fmt: skip


def test_deflate_zstd_chunked_and_json_of_one_run_give_equal_events() -> None:
    run = log()
    layouts = {
        "deflate": eval_writer.deflated(eval_writer.whole(run)),
        "zstd": eval_writer.zstd(eval_writer.whole(run)),
        "chunked": eval_writer.deflated(eval_writer.chunked(run)),
        "chunked zstd": eval_writer.zstd(eval_writer.chunked(run, size=1)),
        "json": json.dumps(run, indent=2).encode(),
    }
    got = {name: events_of(read("inspect", source(data))) for name, data in layouts.items()}
    for name, events in got.items():
        assert events == got["deflate"], name
        assert check(importer("inspect"), source(layouts[name], "log")) == [], name


def test_the_real_log_as_json_and_zstd_gives_equal_events_and_so_does_its_chunked_form(shared_data: Path) -> None:
    folder = shared_data / "inspect-derived"
    run = json.loads((folder / "guess_number__rewritten_0.3.285.json").read_text())
    from_json = events_of(read("inspect", folder / "guess_number__rewritten_0.3.285.json"))
    assert events_of(read("inspect", folder / "guess_number__rewritten_0.3.285_zstd.eval")) == from_json
    respelled = events_of(read("inspect", source(json.dumps(run).encode())))  # Python spells small floats its own way
    assert events_of(read("inspect", source(eval_writer.zstd(eval_writer.chunked(run))))) == respelled


def test_every_real_log_has_its_replies_calls_arguments_outputs_and_tokens(shared_data: Path) -> None:
    paths = [*(shared_data / "inspect").glob("*.eval"), *(shared_data / "inspect-derived").glob("*.eval")]
    assert len(paths) == 5
    for path in paths:
        samples = [value for name, value in members_of(path).items() if name.startswith("samples/")]
        events = [one for sample in samples for one in sample["events"]]
        models = [one for one in events if one["event"] == "model"]
        messages = [one["output"]["choices"][0]["message"] for one in models]
        got = read("inspect", path)
        assert len(got.of(ModelReplied)) == len(models), path.name
        assert [from_tree(one.wire)["content"] for one in got.of(ModelReplied)] == [one["content"] for one in messages]
        calls = [call for one in messages for call in one.get("tool_calls") or []]
        assert [json.loads(str(text)) for text in all_arguments(got)] == [call["arguments"] for call in calls]
        outputs = {
            one["tool_call_id"]: one["content"]
            for sample in samples
            for one in sample["messages"]
            if one["role"] == "tool"
        }
        assert {one.provider_id: one.output for one in got.of(ToolResult)} == outputs
        usage = [one["output"].get("usage") or {} for one in models]
        assert got.usage()[0] == sum(one.get("input_tokens", 0) for one in usage)
        assert got.usage()[3] == sum(one.get("output_tokens", 0) for one in usage)
        kinds = {name: count for name, count in got.loss.seen.items() if name in {one["event"] for one in events}}
        assert sum(kinds.values()) == len(events), path.name
        assert check(importer("inspect"), Source.of_path(str(path))) == [], path.name


def test_raw_responses_are_verbatim_and_prompts_have_their_attachments_back(shared_data: Path) -> None:
    path = shared_data / "inspect" / "log_streaming.eval"
    samples = [value for name, value in members_of(path).items() if name.startswith("samples/")]
    responses = [one["call"]["response"] for sample in samples for one in sample["events"] if one["event"] == "model"]
    got = read("inspect", path)
    assert [json.loads(one.raw) for one in got.of(ModelReplied)] == responses
    said = {from_tree(one.wire)["content"] for one in got.of(MessageAdded)}
    assert not [text for text in said if "attachment://" in text or "tc://" in text]
    assert {
        message["content"] for sample in samples for message in sample["messages"] if message["role"] != "assistant"
    } == said


def test_usage_approvals_compaction_nan_and_unknown_events() -> None:
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(log()))))
    assert got.usage() == (210, 180, 10, 14)
    assert [(one.decision, one.approver, one.because) for one in got.of(ApprovalResolved)] == [
        ("granted", "human", "fine"), ("denied", "auto", ""),
    ]  # fmt: skip
    assert len(got.of(ApprovalRequested)) == 2
    assert [(one.output, one.status) for one in got.of(ToolResult)] == [("one", "ok"), ("refused", "refused")]
    (compacted,) = got.of(Compacted)
    assert (compacted.trigger, compacted.tokens_before, compacted.tokens_after) == ("summary/inspect", 900, 90)
    assert [from_tree(one.wire)["content"] for one in got.of(MessageAdded)] == [LONG, "so far: one"]
    assert "NaN" in got.kept("score")[0].payload.raw
    assert json.loads(got.kept("hologram")[0].payload.raw)["payload"] == [1, {"a": None}]
    assert [one.status for one in got.of(TaskEnded)] == ["completed", "completed"]
    last = [built for built in got.of(ContextBuilt) if built.purpose == "act"][-1]
    assert (last.keep, len(last.append)) == (0, 2)


def test_an_escalated_approval_is_asked_and_not_answered() -> None:
    run = log()
    run["samples"][0]["events"][2]["decision"] = "escalate"
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    assert (len(got.of(ApprovalRequested)), len(got.of(ApprovalResolved))) == (2, 1)


def test_calls_of_a_scorer_open_no_turn() -> None:
    run = log()
    scorer = [event("span_begin", 10, id="s9", type="scorers", name="scorers"),
              model(11, [[0, 1]], assistant(9, "C"), span_id="s9")]  # fmt: skip
    run["samples"][0]["events"] += scorer
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    assert [one.purpose for one in got.of(ContextBuilt)] == ["act", "act", "score"]
    assert max(item.turn for item in got.items) == 1


def test_an_agent_inside_an_agent_is_a_trajectory_below_the_sample() -> None:
    run = log()
    spans = [event("span_begin", 10, id="outer", type="agent", name="react"),
             event("span_begin", 11, id="inner", type="agent", name="helper", parent_id="outer"),
             model(12, [[0, 1]], assistant(9, "sub"), span_id="inner")]  # fmt: skip
    run["samples"][0]["events"] += spans
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    starts = {item.trajectory_id: item.payload for item in got.items if isinstance(item.payload, TaskStarted)}
    assert starts["inspect/UUID1/agent-inner"].parent.trajectory_id == "inspect/UUID1"


def test_what_older_logs_put_inside_a_tool_event_is_a_trajectory_of_its_own() -> None:
    run = log()
    run["samples"][0]["events"][3]["events"] = [model(20, [[0, 1]], assistant(9, "inner")), event("info", 21, data="x")]
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    inner = events_of(got)["inspect/UUID1/agent-tool-c1"]
    assert [type(item.payload).__name__ for item in inner] == [
        "TaskStarted", "MessageAdded", "ContextBuilt", "ModelReplied", "SourceKept", "SourceKept",
    ]  # fmt: skip
    assert got.usage()[0] == 3 * 105
    assert check(importer("inspect"), source(eval_writer.deflated(eval_writer.whole(run)))) == []


def test_an_unfinished_run_gives_its_finished_samples_and_later_only_what_is_new() -> None:
    whole = read("inspect", source(eval_writer.deflated(eval_writer.whole(log()))))
    running = read("inspect", source(eval_writer.deflated(eval_writer.whole(log(), finished=False))))
    for name, events in events_of(running).items():
        assert events == events_of(whole)[name][: len(events)], name
    assert [type(item.payload) for item in events_of(running)["inspect/EV1"]][-1] is not TaskEnded
    assert isinstance(events_of(running)["inspect/UUID1"][-1].payload, TaskEnded)


def test_a_sample_without_model_events_is_its_conversation() -> None:
    run = log()
    run["samples"][0]["events"] = []
    run["samples"][0]["output"] = {"model": "m-1", "usage": {"input_tokens": 3, "output_tokens": 4}}
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    assert [from_tree(one.wire)["content"] for one in got.of(ModelReplied)] == ["done"]
    assert got.usage() == (3, 0, 0, 4)


def test_samples_without_a_uuid_are_told_apart_by_id_and_epoch() -> None:
    run = log()
    del run["samples"][0]["uuid"]
    run["samples"].append({**run["samples"][0], "epoch": 2})
    got = read("inspect", source(eval_writer.deflated(eval_writer.whole(run))))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/EV1/s1_epoch_1", "inspect/EV1/s1_epoch_2"}


# -- damage


def test_without_zstd_support_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = eval_writer.zstd(eval_writer.whole(log()))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BadSource, match="install the package 'zstandard'"):
        read("inspect", source(data))
    assert len(read("inspect", source(eval_writer.deflated(eval_writer.whole(log())))).of(ModelReplied)) == 2


def two_samples() -> list[tuple[str, bytes]]:
    run = log()
    run["samples"].append({**run["samples"][0], "id": "s2", "uuid": "UUID2"})
    return eval_writer.whole(run)


def test_a_damaged_member_costs_its_sample_and_no_other() -> None:
    data = bytearray(eval_writer.zstd(two_samples()))
    at = data.index(b"samples/s1_epoch_1.json") + len("samples/s1_epoch_1.json") + 40
    data[at : at + 8] = b"\0" * 8
    got = read("inspect", source(bytes(data)))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID2"}
    assert [problem.partition(":")[0] for problem in got.loss.problems] == ["samples/s1_epoch_1.json"]


def test_a_sample_cut_short_or_no_json_costs_itself_only() -> None:
    members = [(name, data[: len(data) // 2] if "s1_epoch" in name else data) for name, data in two_samples()]
    got = read("inspect", source(eval_writer.deflated(members)))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID2"}


def test_an_archive_cut_short_is_refused_with_one_line() -> None:
    data = eval_writer.deflated(two_samples())
    with pytest.raises(BadSource, match="no whole ZIP archive"):
        read("inspect", source(data[: len(data) * 2 // 3]))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "samples/../../x.json", "samples\\..\\x.json"])
def test_a_hostile_member_name_is_named_and_never_a_path(name: str, tmp_path: Path) -> None:
    got = read("inspect", source(eval_writer.deflated([*two_samples(), (name, b"{}")])))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID1", "inspect/UUID2"}
    assert got.loss.problem_count == 1
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_sample_id_costs_its_sample() -> None:
    run = log()
    run["samples"].append({**run["samples"][0], "uuid": "../../x"})
    got = read("inspect", source(json.dumps(run).encode()))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID1"}
    assert "looks like a path" in got.loss.problems[0]


def test_a_hostile_span_id_costs_its_event_only() -> None:
    run = log()
    run["samples"][0]["events"] += [
        event("span_begin", 10, id="outer", type="agent", name="react"),
        event("span_begin", 11, id="../../x", type="agent", name="helper", parent_id="outer"),
        model(12, [[0, 1]], assistant(9, "sub"), span_id="../../x"),
    ]
    got = read("inspect", source(json.dumps(run).encode()))
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID1"}
    assert len(got.kept("unreadable event")) == 1
    assert check(importer("inspect"), source(json.dumps(run).encode())) == []


def test_a_member_that_states_a_size_no_honest_one_has_is_refused_before_it_is_unpacked() -> None:
    data = bytearray(eval_writer.zstd(two_samples()))
    at = data.rindex(b"samples/s1_epoch_1.json") - 46 + 24
    data[at : at + 4] = struct.pack("<I", 0xFFFF_FFF0)
    got = read("inspect", source(bytes(data)))
    assert "possible bomb" in got.loss.problems[0]
    assert set(events_of(got)) == {"inspect/EV1", "inspect/UUID2"}


def test_members_that_share_bytes_are_refused_as_a_bomb() -> None:
    data = bytearray(eval_writer.zstd(two_samples()))
    first = data.rindex(b"samples/s1_epoch_1.json") - 46 + 42
    second = data.rindex(b"samples/s2_epoch_1.json") - 46 + 42
    data[second : second + 4] = data[first : first + 4]
    with pytest.raises(BadSource, match="refused as a bomb"):
        read("inspect", source(bytes(data)))


def test_lone_surrogates_nul_duplicate_keys_and_deep_nesting_stop_nothing() -> None:
    whole = json.dumps(log()).replace('"one"', r'"\ud83d \u0000"')
    deep = '{"event":"deep","x":' + "[" * 30_000 + "]" * 30_000 + "}"
    whole = whole.replace('{"event": "hologram"', deep + ', {"a": 1, "a": 2, "event": "hologram"')
    got = read("inspect", source(whole.encode()))
    assert from_tree(got.of(ToolResult)[0].output) == "\ud83d \0"
    assert got.kept("unreadable event")[0].payload.raw == deep
    assert '"a":1,"a":2' in got.kept("hologram")[0].payload.raw
    assert check(importer("inspect"), source(whole.encode())) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"PK\x03\x04", b'{"eval": {', b"[" * 30_000],
    ids=["empty", "object", "zip magic", "cut", "deep"],
)
def test_what_is_no_log_is_refused_with_one_line(data: bytes) -> None:
    with pytest.raises(BadSource) as refused:
        read("inspect", source(data))
    assert "\n" not in str(refused.value)


MEMORY = """
import sys
from trajlake.ingest.formats.contract import Loss, ReadOptions
from trajlake.ingest.formats.inspect import IMPORTER
from trajlake.ingest.sources import Source
count = sum(1 for _ in IMPORTER.read(Source.of_path(sys.argv[1]), ReadOptions(), Loss()))
# Not ru_maxrss: it counts what the parent held at the fork.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(count, int(peak) * 1024)
"""


def write_large(path: Path, steps: int, text_size: int) -> int:
    """One sample of `steps` model and tool events, each output `text_size` characters. Returns its unpacked size."""
    run = log()
    shell = dict(run["samples"][0], events=[], messages=[], events_data={"messages": [], "calls": []})
    pool = [shell["attachments"][HASH]] and [{"id": "u", "role": "user", "content": "go"}]
    size = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in eval_writer.whole({**run, "samples": []}):
            archive.writestr(name, data)
        with archive.open("samples/big_epoch_1.json", "w", force_zip64=True) as member:
            member.write(
                json.dumps(shell)[:-1].replace('"events": []', '"no": 0').replace('"events_data"', '"other"').encode()
            )
            member.write(b',"events":[')
            for number in range(steps):
                text = f"{number} " + "word " * (text_size // 5)
                one, two = (
                    assistant(number, "go on", (f"c{number}", {"n": number})),
                    tool_message(number, f"c{number}", text),
                )
                made = [model(1, [[0, len(pool)]], one),
                        event("tool", 2, id=f"c{number}", function="bash", arguments={"n": number}, result=text,
                              message_id=f"t{number}")]  # fmt: skip
                pool += [one, two]
                size += member.write((b"," if number else b"") + json.dumps(made)[1:-1].encode())
            size += member.write(b'],"events_data":{"messages":' + json.dumps(pool).encode() + b',"calls":[]}}')
    return size


@pytest.mark.parametrize(("steps", "text_size", "peak_max"), [
    (400, 50_000, 300e6),
    pytest.param(5_000, 50_000, 1e9, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
])  # fmt: skip
def test_a_large_sample_is_read_in_bounded_memory(tmp_path: Path, steps: int, text_size: int, peak_max: float) -> None:
    size = write_large(tmp_path / "big.eval", steps, text_size)
    assert size > 2 * steps * text_size * 0.99
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "big.eval")], capture_output=True, text=True, check=True
    )
    count, peak = map(int, done.stdout.split())
    assert count > 4 * steps
    assert peak < peak_max, f"{size / 1e6:.0f} MB sample: peak {peak / 1e6:.0f} MB"
