"""swe-agent, mini-swe-agent, openhands, tau2-bench: real files against an independent reading, and their quirks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.manifest import stated
from tests.ingest.reading import Read, all_arguments, jsonl, read
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Compacted,
    ContextBuilt,
    MessageAdded,
    ModelReplied,
    SourceKept,
    TaskEnded,
    ToolResult,
)
from trajlake.schemas.values import from_tree

# Where the manifest counts other things, and what is right:
# * pydicom: 12 replies; ctf: 16 steps, of which one reply is not in history (it was taken back), 15 are.
# * local: a bare list with 2 replies.
# * openhands basic: its 3 "turns" count the user's message; 2 completions.
# * openhands resolver: the manifest says history is empty; its lines hold 8 and 44 events (26 actions of the agent).
# * openhands sdk: 2 action events; 3 observations, one of an action that is not in the file.
REPLIES = {"basic.json": 2, "resolver_output.jsonl": 26, "sdk_v1_events.jsonl": 2}
CALLS = {"resolver_output.jsonl": (24, 0), "sdk_v1_events.jsonl": (2, 0), "basic.json": (2, 1)}


def document(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_every_real_file_conforms_and_has_the_stated_replies_and_calls(shared_data: Path) -> None:
    for name in ("swe-agent", "mini-swe-agent", "openhands"):
        for file, told in stated(shared_data, name).items():
            got = read(name, shared_data / name / file)
            assert len(got.of(ModelReplied)) == REPLIES.get(file, told.turns), file
            calls, unanswered = CALLS.get(file, (told.calls, told.unanswered))
            assert (len(got.calls), got.unanswered) == (calls, unanswered), file
            assert check(importer(name), Source.of_path(str(shared_data / name / file)), cuts=50) == [], file
            assert got.loss.problem_count == 0


# -- SWE-agent


def test_swe_agent_messages_arguments_and_outputs_are_the_source_texts(shared_data: Path) -> None:
    for path in sorted((shared_data / "swe-agent").glob("*.traj")):
        history = json.loads(path.read_text())["history"]
        got = read("swe-agent", path)
        replies = [one for one in history if one["role"] == "assistant"]
        arguments = [call["function"]["arguments"] for one in replies for call in one.get("tool_calls") or []]
        assert all_arguments(got) == arguments, path.name
        kept = [json.loads(one.raw) for one in got.of(ModelReplied) if one.status == "kept"]
        assert kept == replies, path.name
        outputs = [one["content"] for one in history if one["role"] == "tool"]
        texts = [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in outputs]
        assert [from_tree(one.output) for one in got.of(ToolResult)] == texts, path.name
        said = [one for one in history if one["role"] in ("user", "system")]
        assert [one.role for one in got.of(MessageAdded)] == [one["role"] for one in said], path.name


def test_swe_agent_prompts_that_repeat_history_are_stored_once(shared_data: Path) -> None:
    path = shared_data / "swe-agent" / "pandas-dev__pandas.95280573.pr_53856.traj"
    got = read("swe-agent", path)
    prompts = sum(len(step["messages"]) for step in json.loads(path.read_text())["trajectory"])
    assert got.loss.skipped == {"prompt message (stands in history)": prompts}
    stored = sum(len(str(item.payload)) for item in got.items)
    assert stored < path.stat().st_size / 3


def test_swe_agent_what_only_a_step_knows_is_kept_and_the_run_ends(shared_data: Path) -> None:
    path = shared_data / "swe-agent" / "marshmallow-1867__function_calling_replace_from_source.traj"
    got, source = read("swe-agent", path), json.loads(path.read_text())
    steps = [json.loads(one.payload.raw) for one in got.kept("step")]
    assert [step["execution_time"] for step in steps] == [step["execution_time"] for step in source["trajectory"]]
    assert [step["observation"] for step in steps] == [step["observation"] for step in source["trajectory"]]
    (info,) = got.kept("info")
    assert json.loads(info.payload.raw)["info"] == source["info"]
    assert [one.status for one in got.of(TaskEnded)] == ["completed"]


def test_swe_agent_a_reply_that_was_taken_back_is_no_item_of_the_context(shared_data: Path) -> None:
    got = read("swe-agent", shared_data / "swe-agent" / "ctf_crypto_BabyEncryption.traj")
    taken_back = [one for one in got.of(ModelReplied) if one.status == "retried"]
    assert [one.place for one in taken_back] == ["/trajectory/8/response"]
    number = next(n for n, item in enumerate(got.items) if item.payload is taken_back[0])
    assert all(number not in built.append for built in got.of(ContextBuilt))


def test_swe_agent_an_exact_prompt_with_shortened_observations_is_the_context() -> None:
    def tool(text: str) -> dict[str, Any]:
        return {"role": "tool", "content": text, "tool_call_ids": ["c1"]}

    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    history = [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": "one", "tool_calls": [call]},
               tool("very long"), {"role": "assistant", "content": "two"}]  # fmt: skip
    steps = [{"response": "one", "query": history[:1]},
             {"response": "two", "query": [*history[:2], tool("shortened")]}]  # fmt: skip
    got = read("swe-agent", document({"history": history, "trajectory": steps}))
    assert [one.output for one in got.of(ToolResult)] == ["very long"]
    last = got.of(ContextBuilt)[-1]
    shown = [got.items[number].payload for number in last.append[-1:]]
    assert [one.wire["content"] for one in shown] == ["shortened"]


def test_swe_agent_demonstrations_are_copied_context(shared_data: Path) -> None:
    got = read("swe-agent", shared_data / "swe-agent" / "pydicom-1458__legacy_demo.traj")
    assert [one.origin for one in got.of(MessageAdded)].count("copied") == 1


# -- mini-swe-agent


def test_mini_swe_agent_responses_are_verbatim_and_tokens_add_up(shared_data: Path) -> None:
    for path in sorted((shared_data / "mini-swe-agent").glob("*__*.traj.json")):
        source = json.loads(path.read_text())
        got = read("mini-swe-agent", path)
        responses = [one["extra"]["response"] for one in source["messages"] if one["role"] == "assistant"]
        assert [json.loads(one.raw) for one in got.of(ModelReplied)] == responses
        assert all(str(one.raw) in path.read_text() for one in got.of(ModelReplied))
        usage = [one["usage"] for one in responses]
        assert got.usage() == (
            sum(one["prompt_tokens"] for one in usage),
            sum(one["prompt_tokens_details"]["cached_tokens"] for one in usage),
            0,
            sum(one["completion_tokens"] for one in usage),
        )
        said = [one["content"] for one in source["messages"] if one["role"] != "assistant"]
        assert [from_tree(one.wire)["content"] for one in got.of(MessageAdded)] == said
        assert sum(float(one.cost["usd"]) for one in got.of(ModelReplied)) == pytest.approx(
            source["info"]["model_stats"]["instance_cost"]
        )


def test_mini_swe_agent_a_submission_of_868_kb_is_kept_once(shared_data: Path) -> None:
    path = shared_data / "mini-swe-agent" / "psf__requests-1142.traj.json"
    got = read("mini-swe-agent", path)
    assert max(len(one.wire["content"]) for one in got.of(MessageAdded)) == 868_167
    assert sum(len(str(item.payload)) for item in got.items) < 1_400_000
    assert got.loss.notes == {"submission is the last message: stored once": 1}


def test_mini_swe_agent_1_1_with_tool_calls_gives_calls_results_costs_and_times() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    messages = [
        {"role": "system", "content": "s"}, {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call],
         "extra": {"actions": [{"command": "ls", "tool_call_id": "c1"}], "cost": 0.25, "timestamp": 1_750_000_000.5}},
        {"role": "tool", "tool_call_id": "c1", "content": "a b", "extra": {"returncode": 0}},
        {"role": "exit", "content": "done", "extra": {"exit_status": "Submitted", "submission": "x"}},
    ]  # fmt: skip
    info = {
        "exit_status": "Submitted",
        "submission": "x",
        "mini_version": "2.1.0",
        "config": {"model": {"model_name": "m"}},
    }
    got = read(
        "mini-swe-agent", document({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"})
    )
    (reply,) = got.of(ModelReplied)
    assert (reply.cost, all_arguments(got), got.unanswered) == ({"usd": "0.25"}, ['{"command": "ls"}'], 0)
    assert [item.recorded_at for item in got.items if item.payload is reply] == [1_750_000_000_500_000]
    assert {one.payload.kind for one in got.items if isinstance(one.payload, SourceKept)} == {"extra", "exit", "info"}


def test_mini_swe_agent_responses_api_messages_are_replies_with_their_usage() -> None:
    response = {"id": "r1", "object": "response", "model": "m", "created_at": 1_750_000_000, "status": "completed",
                "output": [{"type": "reasoning", "summary": []},
                           {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}],
                "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5},
                }  # fmt: skip
    answer = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    messages = [{"role": "user", "content": "go"}, response, answer]
    got = read(
        "mini-swe-agent", document({"info": {}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"})
    )
    assert got.usage() == (7, 3, 0, 5)
    assert [(one.output, one.status) for one in got.of(ToolResult)] == [("ok", "ok")]


def test_mini_swe_agent_a_run_without_an_exit_is_not_ended_and_grows() -> None:
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "one"}]
    later = [*messages, {"role": "user", "content": "out"}, {"role": "assistant", "content": "two"}]
    info: dict[str, Any] = {"exit_status": "", "model_stats": {}}
    short = read(
        "mini-swe-agent", document({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1"})
    )
    grown = read("mini-swe-agent", document({"info": info, "messages": later, "trajectory_format": "mini-swe-agent-1"}))
    assert short.loss.held_back == {"info": 1}
    assert grown.items[: len(short.items)] == short.items


# -- OpenHands


def test_openhands_v0_completions_are_verbatim_with_usage_counted_once(shared_data: Path) -> None:
    path = shared_data / "openhands" / "basic.json"
    events = json.loads(path.read_text())
    got = read("openhands", path)
    responses = [one["tool_call_metadata"]["model_response"] for one in events if one.get("tool_call_metadata")]
    once = {one["id"]: one for one in responses}
    assert [json.loads(one.raw) for one in got.of(ModelReplied)] == list(once.values())
    usage = [one["usage"] for one in once.values()]
    assert got.usage() == (
        sum(one["prompt_tokens"] for one in usage),
        sum(one["cache_read_input_tokens"] for one in usage),
        sum(one["cache_creation_input_tokens"] for one in usage),
        sum(one["completion_tokens"] for one in usage),
    )
    calls = [call for one in once.values() for call in one["choices"][0]["message"]["tool_calls"]]
    assert all_arguments(got) == [call["function"]["arguments"] for call in calls]
    assert [one.output for one in got.of(ToolResult)] == [events[2]["content"]]


def test_openhands_v0_histories_without_completions_give_actions_and_observations(shared_data: Path) -> None:
    path = shared_data / "openhands" / "resolver_output.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    got = read("openhands", path)
    actions = [one for run in runs for one in run["history"] if one.get("action") in ("run", "run_ipython")]
    assert [call.tool for call in got.calls] == [one["action"] for one in actions]
    for text, action in zip(all_arguments(got), actions, strict=True):
        assert {**json.loads(str(text)), "action": action["action"], "thought": action["thought"]} == action
    outputs = [one["content"] for run in runs for one in run["history"] if "observation" in one]
    assert [from_tree(one.output) for one in got.of(ToolResult)] == outputs
    assert [json.loads(one.payload.raw)["git_patch"] for one in got.kept("run")] == [run["git_patch"] for run in runs]


def test_openhands_v1_usage_is_the_rise_of_the_run_totals(shared_data: Path) -> None:
    path = shared_data / "openhands" / "sdk_v1_events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    last = [one for one in events if one.get("key") == "stats"][-1]["value"]["usage_to_metrics"]["default"]
    told = last["accumulated_token_usage"]
    got = read("openhands", path)
    assert got.usage() == (
        told["prompt_tokens"],
        told["cache_read_tokens"],
        told["cache_write_tokens"],
        told["completion_tokens"],
    )
    actions = [one for one in events if one["kind"] == "ActionEvent"]
    assert all_arguments(got) == [one["tool_call"]["arguments"] for one in actions]
    answered = {
        one["action_id"]: one["observation"]["content"][0]["text"]
        for one in events
        if one["kind"] == "ObservationEvent"
    }
    assert [one.output for one in got.of(ToolResult)] == [answered[one["id"]] for one in actions]
    assert got.loss.notes == {"orphan result": 1}


def v1(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": f"2026-06-16T05:39:{number:02}", "source": "agent", "kind": kind, **more}


def action(number: int, call_id: str, response: str) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}'}
    return v1("ActionEvent", number, tool_name="terminal", tool_call_id=call_id, tool_call=call, thought=[],
              llm_response_id=response)  # fmt: skip


def observation(number: int, call_id: str, text: str) -> dict[str, Any]:
    return v1("ObservationEvent", number, tool_name="terminal", tool_call_id=call_id, action_id="e",
              observation={"content": [{"type": "text", "text": text}]})  # fmt: skip


USER = v1("MessageEvent", 1, llm_message={"role": "user", "content": [{"type": "text", "text": "go"}]})


def test_openhands_v1_parallel_actions_are_one_reply_held_back_until_it_is_whole() -> None:
    events = [USER, action(2, "a", "r1"), action(3, "b", "r1"), observation(4, "b", "B"), observation(5, "a", "A")]
    assert read("openhands", jsonl(*events[:3])).loss.held_back == {"ActionEvent": 2}
    got = read("openhands", jsonl(*events))
    (reply,) = got.of(ModelReplied)
    assert [call.provider_id for call in reply.calls] == ["a", "b"]
    assert [one.output for one in got.of(ToolResult)] == ["B", "A"]
    assert check(importer("openhands"), Source.of_bytes(jsonl(*events), "events.jsonl"), cuts=10) == []


def test_openhands_v1_a_rejection_is_a_denied_approval_and_a_refused_result() -> None:
    rejected = v1("UserRejectObservation", 3, tool_name="terminal", tool_call_id="a", action_id="e2",
                  rejection_reason="not that", rejection_source="user")  # fmt: skip
    got = read("openhands", jsonl(USER, action(2, "a", "r1"), rejected))
    assert [(one.decision, one.because, one.approver) for one in got.of(ApprovalResolved)] == [
        ("denied", "not that", "user")
    ]
    assert len(got.of(ApprovalRequested)) == 1
    assert [(one.status, one.output) for one in got.of(ToolResult)] == [("refused", "not that")]


def test_openhands_v1_a_condensation_drops_what_it_names_and_puts_its_summary_there() -> None:
    condensed = v1("Condensation", 6, forgotten_event_ids=["e2", "e3"], summary="so far", summary_offset=1)
    events = [USER, action(2, "a", "r1"), observation(3, "a", "A"), action(4, "b", "r2"), observation(5, "b", "B"),
              condensed, action(7, "c", "r3"), USER]  # fmt: skip
    got = read("openhands", jsonl(*events))
    (compacted,) = got.of(Compacted)
    assert (compacted.summary, compacted.keep) == ("so far", 1)
    last = got.of(ContextBuilt)[-1]
    shown = [type(got.items[number].payload).__name__ for number in last.append]
    assert (last.keep, shown) == (1, ["Compacted", "ModelReplied", "ToolResult"])


def test_openhands_v1_a_folder_of_event_files_is_one_conversation_that_grows(trajlake: Any, tmp_path: Path) -> None:
    events = [USER, action(2, "a", "r1"), observation(3, "a", "A"), action(4, "b", "r2"), observation(5, "b", "B")]
    folder = tmp_path / "events"
    folder.mkdir()

    def write(upto: int) -> dict[str, Any]:
        for number, one in enumerate(events[:upto]):
            (folder / f"event-{number:05}-{one['id']}.json").write_bytes(document(one))
        done = trajlake("import", "auto", "events", "--journal", "root", "--json")
        assert done.returncode == 0, done.stderr
        total: dict[str, Any] = json.loads(done.stdout)["total"]
        return total

    assert write(3)["trajectories"] == 1
    grown = write(5)
    assert (grown["trajectories"], grown["events_added"] > 0, grown["events_known"] > 0) == (1, True, True)
    whole = read("openhands", Source.of_path(str(folder / "event-00004-e5.json")))
    assert [one.output for one in whole.of(ToolResult)] == ["A", "B"]
    assert write(5)["events_added"] == 0


# -- tau2-bench


def tau2(**more: Any) -> dict[str, Any]:
    def call(call_id: str, name: str, requestor: str, **arguments: Any) -> dict[str, Any]:
        return {"id": call_id, "name": name, "arguments": arguments, "requestor": requestor}

    messages = [
        {"role": "assistant", "content": "Hi!", "tool_calls": None, "timestamp": "2025-06-01T10:00:00", "usage": None},
        {"role": "user", "content": "Help", "usage": {"completion_tokens": 9, "prompt_tokens": 99}, "cost": 0.01},
        {"role": "assistant", "content": None, "cost": 0.02, "usage": {"completion_tokens": 20, "prompt_tokens": 300},
         "tool_calls": [call("c1", "get", "assistant", id=1), call("", "line", "assistant", x={"a": 1.0})]},
        {"role": "tool", "id": "c1", "content": "J", "requestor": "assistant", "error": False},
        {"role": "tool", "id": "", "content": "no", "requestor": "assistant", "error": True},
        {"role": "assistant", "content": "Check it", "usage": {"completion_tokens": 5, "prompt_tokens": 400}},
        {"role": "user", "content": None, "tool_calls": [call("u1", "check", "user")]},
        {"role": "tool", "id": "u1", "content": "no signal", "requestor": "user", "error": False},
        {"role": "user", "content": "No signal ###STOP###"},
        {"role": "assistant", "content": "Bye", "usage": None},
    ]  # fmt: skip
    return {"id": "sim-1", "task_id": "t1", "termination_reason": "user_stop", "reward_info": {"reward": 1.0},
            "messages": messages, "end_time": "2025-06-01T10:05:00", "trial": 0, **more}  # fmt: skip


def results(*simulations: dict[str, Any]) -> bytes:
    info = {"agent_info": {"llm": "gpt-x", "llm_args": {"temperature": 0}}, "user_info": {}, "environment_info": {}}
    return document(
        {"timestamp": "2025-06-01", "info": info, "tasks": [{"id": "t1"}], "simulations": list(simulations)}
    )


def test_tau2_calls_of_the_user_simulator_are_no_proposals_of_the_agent() -> None:
    got = read("tau2-bench", results(tau2()))
    assert [call.tool for call in got.calls] == ["get", "line"]
    assert all_arguments(got) == ['{"id": 1}', '{"x": {"a": 1.0}}']
    assert [(one.output, one.status) for one in got.of(ToolResult)] == [("J", "ok"), ("no", "error")]
    assert got.usage() == (700, 0, 0, 25)
    assert got.loss.notes == {"calls of the user simulator": 1, "answer to a call of the user simulator": 1}
    unseen = [
        n
        for n, item in enumerate(got.items)
        if isinstance(item.payload, MessageAdded) and "requestor" in str(item.payload.wire)
    ]
    seen = {number for built in got.of(ContextBuilt) for number in built.append}
    assert len(unseen) == 2
    assert not seen & set(unseen)


def test_tau2_whole_results_and_single_simulations_give_the_same_conversation() -> None:
    whole, single = read("tau2-bench", results(tau2())), read("tau2-bench", document(tau2()))
    for kind in (ModelReplied, ToolResult):
        assert [one.item_hash for one in whole.of(kind)] == [one.item_hash for one in single.of(kind)]
    assert [json.loads(one.payload.raw)["reward_info"] for one in whole.kept("reward")] == [{"reward": 1.0}]
    assert [one.status for one in whole.of(TaskEnded)] == ["completed"]
    assert {item.trajectory_id for item in whole.items} == {"tau2-bench/sim-1"}


def test_tau2_a_hostile_simulation_id_stops_none_of_the_others() -> None:
    got = read("tau2-bench", results(tau2(id="../../x"), tau2()))
    assert {item.trajectory_id for item in got.items} == {"tau2-bench/sim-1"}
    assert got.loss.problem_count == 1
    assert check(importer("tau2-bench"), Source.of_bytes(results(tau2()), "results.json")) == []


def test_unknown_records_are_kept_under_their_kind() -> None:
    strange = v1("HologramEvent", 9, payload={"x": 1})
    got: Read = read("openhands", jsonl(USER, strange))
    assert json.loads(got.kept("HologramEvent")[0].payload.raw) == strange
    assert got.loss.kept == {"HologramEvent": 1}
