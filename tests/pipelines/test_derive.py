"""Derived tables say what the fold says: same proposals, intents, outcomes and stages, on random trajectories."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.lakes import rows
from tests.pipelines.segments import Landed, Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    Branched,
    CheckpointSaved,
    ContextBuilt,
    LateResult,
    LeaseReleased,
    ModelReplied,
    ProposedCall,
    RewardAssigned,
    RolledBack,
    ToolIntent,
    ToolResult,
    ToolSettled,
    Usage,
)
from trajlake.schemas.history import given_up
from trajlake.schemas.state.fold import fold
from trajlake.schemas.state.records import initial
from trajlake.schemas.state.stages import decide, facts

A = b"a" * 16


def lake_of(tmp: Path, *stories: Story) -> Path:
    landed: list[Landed] = [item for story in stories for item in story.landed]
    land(tmp / "landing", A, 0, landed)
    compact(str(tmp / "landing"), str(tmp / "lake"))
    return tmp / "lake"


def reply(story: Story, *calls: ProposedCall, **more: Any) -> int:
    return story.add(ModelReplied(raw="{}", calls=calls, **more)).sequence_number


def intent(action: str, attempt: int = 1, **more: Any) -> ToolIntent:
    return ToolIntent(action_id=action, tool="t", arguments_hash="a" * 64, key="k" * 64, effect="external",
                      attempt=attempt, **more)  # fmt: skip


def random_story(seed: int) -> Story:
    """Return a legal-looking and often strange history of actions."""
    rng = random.Random(seed)
    story = Story(f"t{seed}").start(origin=rng.choice(["live", "live", "imported"]))
    checkpoints: list[int] = []
    actions: list[str] = []
    for _ in range(rng.randrange(10, 60)):
        story.turn = max(story.turn, 0) + (rng.random() < 0.2)
        action = rng.choice(actions) if actions and rng.random() < 0.9 else f"{len(story.landed)}.0"
        dice = rng.random()
        if dice < 0.2:
            status = rng.choice(["kept", "kept", "rejected"])
            at = reply(story, *(ProposedCall(tool="t") for _ in range(rng.randrange(3))), status=status)
            if status == "kept":
                actions += [f"{at}.{n}" for n in range(len(story.landed[-1].event.body.calls))]
        elif dice < 0.35:
            story.add(Authorized(action_id=action, tool="t", decision=rng.choice(["allow", "ask"]), arguments_hash="h"))
        elif dice < 0.55:
            story.add(intent(action, asynchronous=rng.random() < 0.2))
        elif dice < 0.7:
            story.add(ToolResult(action_id=action, status=rng.choice(["ok", "error", "not_executed"]), output="o"))
        elif dice < 0.76:
            story.add(ToolSettled(action_id=action, how="probe", verdict=rng.choice(["executed", "not_executed"])))
        elif dice < 0.8 and action in actions:
            story.add(LateResult(action_id=action, decision="accepted"))
        elif dice < 0.88:
            at = len(story.landed) - 1
            story.add(CheckpointSaved(covers=at, state_hash="s", root="r", cause="interval"))
            checkpoints.append(at + 1)
        elif dice < 0.93 and checkpoints:
            to = rng.choice(checkpoints)
            story.add(RolledBack(to=to, from_=len(story.landed) - 1))
            actions = [action for action in actions if int(action.split(".")[0]) <= to]
            checkpoints = [at for at in checkpoints if at <= to]
        elif dice < 0.95:
            story.add(LeaseReleased(token=story.token))
            story = story.takeover(len(story.landed) - 1, story.token + 1)
        if action not in actions and any(action == getattr(e.body, "action_id", "") for e, _ in story.landed[-1:]):
            actions.append(action)
    return story


def folded(story: Story) -> dict[str, dict[str, Any]]:
    events = [event for event, _ in story.landed]
    state = fold(initial("t", story.info.trajectory_id), events)
    open_token = None
    for event in events:
        if event.type in ("TaskStarted", "LeaseAcquired"):
            open_token = event.fencing_token
        elif event.type in ("LeaseReleased", "TaskEnded"):
            open_token = None
    return {
        action.action_id: {
            "proposed_seq": action.proposed,
            "authorized_seq": action.authorized,
            "intent_seq": action.intent,
            "result_seq": action.outcome,
            "late_seq": action.late,
            "status": action.status or None,
            "decision": action.decision,
            "stage": decide(facts(action, state, 0, open_token, deadline_passed=False)),
        }
        for action in state.execution.actions.values()
    }


def test_every_action_has_the_events_and_the_stage_that_the_fold_gives(tmp_path: Path) -> None:
    stories = [random_story(seed) for seed in range(60)]
    table = rows(lake_of(tmp_path, *stories), "tool_calls")
    for story in stories:
        want = folded(story)
        mine = table.filter(table["trajectory_id"] == story.info.trajectory_id).to_dicts()
        found = {row["action_id"]: row for row in mine if not row["given_up"]}
        assert set(found) == set(want), story.info.trajectory_id
        for action, values in want.items():
            assert {name: found[action][name] for name in values} == values, (story.info.trajectory_id, action)


def test_given_up_rows_are_kept_and_marked(tmp_path: Path) -> None:
    stories = [random_story(seed) for seed in range(60, 90)]
    lake = lake_of(tmp_path, *stories)
    calls, trajectories = rows(lake, "model_calls"), rows(lake, "trajectories")
    for story in stories:
        events = [event for event, _ in story.landed]
        lost = given_up(events)
        mine = calls.filter(calls["trajectory_id"] == story.info.trajectory_id)
        assert set(mine.filter(mine["given_up"])["sequence_number"]) == {
            e.sequence_number for e in events if e.type == "ModelReplied" and e.sequence_number in lost
        }
        row = trajectories.filter(trajectories["trajectory_id"] == story.info.trajectory_id).to_dicts()[0]
        assert row["given_up"] == len(lost)


@pytest.mark.parametrize(
    ("raw", "call", "text"),
    [
        (json.dumps({"calls": [{"arguments": '{"a": 1.0}'}]}), ProposedCall(tool="t", pointer="/calls/0/arguments"),
         '{"a": 1.0}'),
        (json.dumps({"a/b": {"~": "not json"}}), ProposedCall(tool="t", pointer="/a~1b/~0"), "not json"),
        ({"$blob": "0" * 64, "bytes": 99999, "kind": "json"}, ProposedCall(tool="t", arguments="{ }"), "{ }"),
        ("not json", ProposedCall(tool="t", pointer="/a"), None),
        ("{}", ProposedCall(tool="t", pointer="/a/0/b"), None),
        ("{}", ProposedCall(tool="t", arguments={"a": [1]}), '{"a":[1]}'),
    ],
)  # fmt: skip
def test_argument_text_is_found_where_the_reply_keeps_it(raw: Any, call: ProposedCall, text: str | None) -> None:
    from trajlake.pipelines.derived.canonicalize import canonicalize
    from trajlake.pipelines.derived.derive_actions import tool_calls
    from trajlake.pipelines.derived.touched import Touched

    story = Story("t").start()
    story.add(ModelReplied(raw=raw, calls=(call,)))
    judged = canonicalize(frame_of(story))
    table = tool_calls(Touched.of(judged.rows, judged))
    assert table["arguments"].to_list() == [text]


def frame_of(story: Story) -> Any:
    import polars as pl

    from tests.pipelines.test_canonicalize import frame

    plain = frame([(event, 0) for event, _ in story.landed])
    return plain.with_columns(
        pl.lit("2026-11-30").str.to_date().alias("started_on"), pl.lit("m").alias("model"),
        pl.lit(0).alias("turn").cast(pl.Int32), pl.lit(0).cast(pl.Datetime("us", "UTC")).alias("recorded_at"),
    )  # fmt: skip


def test_a_model_call_row_carries_usage_context_and_what_the_provider_reported(tmp_path: Path) -> None:
    story = Story("t").start()
    built = story.add(ContextBuilt(context_hash="c" * 64, keep=2, append=(0, 1, 2)))
    story.add(
        ModelReplied(
            raw="{}", context=built.sequence_number, usage=Usage(input_total=10, cached_read=4, output=3),
            served_model="m-2", stop_reason="end", cost={"usd": "0.25"}, duration_ms=12.5,
        )
    )  # fmt: skip
    story.add(ModelReplied(raw="{}", status="error", attempt=2, error="429"))
    table = rows(lake_of(tmp_path, story), "model_calls").sort("sequence_number").to_dicts()
    wanted = {
        "purpose": "act", "context_seq": 1, "context_kept": 2, "context_appended": 3, "input_tokens": 10,
        "cached_read_tokens": 4, "cache_write_tokens": None, "output_tokens": 3, "served_model": "m-2",
        "stop_reason": "end", "cost_usd": 0.25, "duration_ms": 12.5, "status": "kept", "attempt": 1,
    }  # fmt: skip
    assert {name: table[0][name] for name in wanted} == wanted
    assert (table[1]["status"], table[1]["error"], table[1]["input_tokens"]) == ("error", "429", None)
    row = rows(tmp_path / "lake", "trajectories").to_dicts()[0]
    assert (row["model_calls"], row["input_tokens"], row["output_tokens"]) == (2, 10, 3)


def test_approvals_show_the_question_the_first_answer_and_their_use(tmp_path: Path) -> None:
    story = Story("t").start()
    at = reply(story, ProposedCall(tool="t"), ProposedCall(tool="t"))
    for n in (0, 1):
        story.add(ApprovalRequested(approval_id=f"p{n}", action_id=f"{at}.{n}", tool="t", arguments_hash="h"))
    story.add(ApprovalResolved(approval_id="p0", action_id=f"{at}.0", decision="granted", approver="eve"))
    story.add(ApprovalResolved(approval_id="p0", action_id=f"{at}.0", decision="denied", approver="bob"))
    story.add(intent(f"{at}.0", approval="p0"))
    table = rows(lake_of(tmp_path, story), "approvals").sort("approval_id").to_dicts()
    assert [(r["state"], r["approver"], r["uses"], r["used_seq"]) for r in table] == [
        ("granted", "eve", 1, 6), ("waiting", None, 0, None)
    ]  # fmt: skip


def test_judgements_branches_and_checkpoints_have_their_rows(tmp_path: Path) -> None:
    judge = Story("judge/v/1/abc").start(origin="judgement")
    judge.add(RewardAssigned(tenant="t", trajectory_id="b", verifier="v", verifier_version="1", value="0.50",
                             details={"why": [1]}))  # fmt: skip
    branch = Story("b").start()
    branch.add(Branched(parent_tenant="t", parent_trajectory_id="p", parent_sequence=4, parent_hash="ab", at_turn=2))
    branch.add(CheckpointSaved(covers=1, state_hash="s", root="r", cause="end", pause_ms=1.5, bytes_written=7))
    lake = lake_of(tmp_path, judge, branch.end())
    (row,) = rows(lake, "judgements").to_dicts()
    assert (row["judged_trajectory_id"], row["value"], row["value_number"], row["details"]) == (
        "b", "0.50", 0.5, '{"why":[1]}'
    )  # fmt: skip
    (row,) = rows(lake, "checkpoints").to_dicts()
    assert (row["covers"], row["cause"], row["bytes_written"]) == (1, "end", 7)
    found = {row["trajectory_id"]: row for row in rows(lake, "trajectories").to_dicts()}
    assert (found["b"]["branch_of_trajectory_id"], found["b"]["branch_at_turn"], found["b"]["status"]) == (
        "p", 2, "completed"
    )  # fmt: skip
    assert found["judge/v/1/abc"]["kind"] == "judgement"


def test_payloads_are_read_where_they_stand_short_long_erased_and_from_a_part_of_a_frame() -> None:
    import polars as pl

    from trajlake.pipelines.derived.touched import _payloads

    texts = ["{}", None, '{"twelve":1}', '{"thirteen":1}', '{"é":"' + "x" * 40 + '"}', ""]
    frame = pl.DataFrame({"payload": texts})
    for part in (frame, frame[1:5], frame.filter(pl.col("payload").is_not_null())[2:], frame[:0], frame[1:2]):
        found = [None if text is None else bytes(text).decode() for text in _payloads(part)]
        assert found == part["payload"].to_list()
