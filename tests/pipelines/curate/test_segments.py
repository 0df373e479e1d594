"""Context segments: every kept reply trains exactly once, in the context it was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy
from tests.pipelines.segments import Story
from trajlake.pipelines.curate.cut import CutOptions, cut_sft
from trajlake.schemas.events import Branched, CheckpointSaved, LeaseAcquired, RolledBack, TaskStarted


def cut(folder: Path, runs: list[Any], **tables: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cut a set; return its rows and its ledger."""
    lake = lake_of(folder, runs)
    done = cut_sft(lake, policy(**tables), str(folder / "set"), CutOptions())
    assert done.funnel.adds_up()
    path = folder / "set" / "rows" / "train.parquet"
    rows = pl.read_parquet(path) if path.exists() else pl.DataFrame()
    return rows, pl.read_parquet(folder / "set" / "ledger.parquet")


def trained(rows: pl.DataFrame) -> list[list[str]]:
    """Return, per row, what its targets say."""
    found = []
    for messages, flags in rows.select("messages_json", "train").iter_rows():
        found.append([m["content"] for m, flag in zip(json.loads(messages), flags, strict=True) if flag])
    return found


def compaction_run(declared: bool = True) -> Run:
    """r1, r2, a rejected summary, a summary, compaction, r3, a sub-agent's a1, r4, a2."""
    run = Run("with compaction").say("user", "go")
    run.result(run.reply("r1", [("run", "{}")]), "o1")
    run.reply("r2")
    run.say("user", "summarise")
    asked = list(run.items)
    run.reply("REJECTED", purpose="compact", status="rejected", items=asked)
    summary = run.reply("SUM", purpose="compact", items=asked)
    if declared:
        run.compacted(summary)
    else:
        run.items[:] = [summary]
    run.say("user", "go on")
    run.result(run.reply("r3", [("run", '{"n":3}')]), "o3")
    main = list(run.items)
    run.items = []
    run.say("user", "sub task")
    sub = list(run.items)
    a1 = run.reply("a1", purpose="subagent", items=sub)
    run.items = main
    run.reply("r4")
    run.items = [*sub, a1]
    run.say("user", "more")
    run.reply("a2", purpose="subagent", items=run.items)
    return run.end()


def test_compaction_a_rejected_summary_and_a_sub_agent_give_three_rows_and_each_reply_trains_once(
    tmp_path: Path,
) -> None:
    # CASES.md E12, first half.
    rows, _ = cut(tmp_path, [compaction_run()])
    assert sorted(trained(rows)) == [["a1", "a2"], ["r1", "r2", "SUM"], ["r3", "r4"]]
    assert "REJECTED" not in "".join(rows["messages_json"])
    assert dict(rows.select("purpose", "segment_kind").sort("purpose").unique().iter_rows())["subagent"] == "subagent"
    assert rows.filter(pl.col("is_last")).height == 1


def test_a_break_without_a_declared_cause_is_an_error_with_a_name(tmp_path: Path) -> None:
    # CASES.md E12, second half: the same run without `Compacted`.
    rows, ledger = cut(tmp_path, [compaction_run(declared=False)])
    assert rows.height == 0
    assert ledger["reason"].to_list() == ["undeclared_discontinuity"]
    assert "does not extend" in ledger["detail"][0]


def test_a_prompt_is_what_the_model_saw_down_to_its_item_hashes(tmp_path: Path) -> None:
    run = Run("one").simple()
    rows, _ = cut(tmp_path, [run])
    row = rows.row(0, named=True)
    assert row["ctx_msg_hashes"] == [run.hashes[ref] for ref in run.items]
    assert [m["role"] for m in json.loads(row["messages_json"])] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert row["journal_head"] == run.story.landed[-1].event.hash.hex()


def test_contents_are_compared_not_lengths(tmp_path: Path) -> None:
    # As many items as before, but another question: a reset, which must be declared.
    run = Run("reset").say("user", "a")
    run.reply("r1")
    run.items = []
    run.say("user", "b").say("user", "c")
    run.reply("r2")
    rows, ledger = cut(tmp_path, [run.end()])
    assert rows.height == 0
    assert ledger["reason"].to_list() == ["undeclared_discontinuity"]


def test_replies_of_a_given_up_turn_never_train(tmp_path: Path) -> None:
    run = Run("rolled back").say("user", "go")
    run.reply("kept")
    checkpoint = run.number
    run.story.add(CheckpointSaved(covers=checkpoint - 1, state_hash="0" * 64, root="0" * 64, cause="interval"))
    items = list(run.items)
    before = run.before
    run.say("user", "try this")
    run.reply("GIVEN UP")
    run.story.add(RolledBack(to=checkpoint, from_=run.number - 1))
    run.items, run.before = items, before
    run.say("user", "try that")
    run.reply("better")
    rows, _ = cut(tmp_path, [run.end()])
    assert trained(rows) == [["kept", "better"]]
    assert "GIVEN UP" not in rows["messages_json"][0]


def test_superseded_replies_never_train(tmp_path: Path) -> None:
    run = Run("taken over").say("user", "go")
    run.reply("kept")
    fork = run.number - 1
    lost = run.story.takeover(fork, 1 << 3)
    other = Run.__new__(Run)
    other.__dict__.update(run.__dict__, items=list(run.items), hashes=dict(run.hashes))
    run.reply("SUPERSEDED")
    other.story = lost
    other.story.turn = run.story.turn
    other.reply("canonical")
    other.end()
    assert isinstance(lost.landed[fork + 1].event.body, LeaseAcquired)
    landed = run.story.landed + lost.landed[fork + 1 :]
    both = Story("taken over")
    both.landed = landed
    rows, _ = cut(tmp_path, [both])
    assert trained(rows) == [["kept", "canonical"]]


def branch_of(parent: Run, at_turn: int, last: int) -> Run:
    """A branch that inherits the parent's events up to `last`."""
    branch = Run("branch", tools=())
    branch.story.landed.clear()
    branch.story.prev = Story("branch").prev
    branch.story.add(TaskStarted(task={"task_id": "branch"}, model="m", model_version="1"))
    branch.story.add(
        Branched(parent_tenant="t", parent_trajectory_id=parent.story.info.trajectory_id, parent_sequence=last,
                 parent_hash=parent.story.landed[last].event.hash.hex(), at_turn=at_turn)
    )  # fmt: skip
    branch.head = parent.head
    branch.items = [(1, ref) for ref in parent.items if ref <= last]
    branch.hashes = {(1, ref): digest for ref, digest in parent.hashes.items()}
    return branch


def test_the_parents_part_of_a_branch_is_context_and_never_trains(tmp_path: Path) -> None:
    parent = Run("parent").say("user", "go")
    seq = parent.reply("of the parent", [("run", "{}")])
    parent.result(seq, "o")
    last = parent.number - 1
    branch = branch_of(parent, 1, last)
    branch.reply("of the branch")
    parent.reply("goes on")
    rows, _ = cut(tmp_path, [parent.end(), branch.end()])
    by_id = dict(zip(rows["trajectory_id"], trained(rows), strict=True))
    assert by_id == {"parent": ["of the parent", "goes on"], "branch": ["of the branch"]}
    shown = json.loads(rows.filter(pl.col("trajectory_id") == "branch")["messages_json"][0])
    assert [m["content"] for m in shown] == ["go", "of the parent", "o", "of the branch"]


def test_only_allow_listed_models_train_and_others_are_context(tmp_path: Path) -> None:
    run = Run("two models").say("user", "go")
    run.result(run.reply("mine", [("run", "{}")]), "o")
    run.result(run.reply("of the fallback", [("run", '{"a":1}')], model="other-2"), "o")
    run.reply("after the switch", system_no=1)
    run.say("user", "more")
    run.reply("mine again")
    allow = {"models": {"allow": ["m-*"]}}
    rows, _ = cut(tmp_path, [run.end()], **allow)
    assert trained(rows) == [["mine", "after the switch", "mine again"]]
    assert "of the fallback" in rows["messages_json"][0]


def test_a_system_number_can_be_kept_from_training(tmp_path: Path) -> None:
    from tests.pipelines.curate.runs import policy_text
    from trajlake.pipelines.curate.policy import parse_policy

    run = Run("drifted").say("user", "go")
    run.reply("before")
    run.say("user", "more")
    run.reply("after", system_no=1)
    lake = lake_of(tmp_path, [run.end()])
    text = policy_text(models={"allow": []}).replace("allow = []", 'allow = [{served_model = "m-*", system_no = [0]}]')
    cut_sft(lake, parse_policy(text), str(tmp_path / "set"), CutOptions())
    assert trained(pl.read_parquet(tmp_path / "set" / "rows" / "train.parquet")) == [["before"]]


def test_nothing_trains_without_a_list_of_models(tmp_path: Path) -> None:
    rows, ledger = cut(tmp_path, [Run("one").simple()], models={"allow": []})
    assert rows.height == 0
    assert ledger["reason"].to_list() == ["model_not_allowed"]


def test_another_list_of_tools_begins_another_row(tmp_path: Path) -> None:
    import hashlib

    from trajlake.schemas.events import ContextHead

    run = Run("tools change").say("user", "go")
    run.reply("one")
    run.say("user", "more")
    other = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}]
    digest = hashlib.sha256(b"other").hexdigest()
    run.head, run._stored = ContextHead(tools=digest), {digest: other}
    run.reply("two")
    rows, _ = cut(tmp_path, [run.end()])
    assert sorted(trained(rows)) == [["one"], ["two"]]
    assert {json.loads(tools)[0]["function"]["name"] for tools in rows["tools_json"]} == {"run", "look"}


@pytest.mark.parametrize("status", ["rejected", "retried", "error"])
def test_attempts_that_were_not_kept_are_in_no_row(tmp_path: Path, status: str) -> None:
    run = Run("attempts").say("user", "go")
    run.reply("NOT KEPT", status=status)
    run.reply("kept")
    rows, _ = cut(tmp_path, [run.end()])
    assert trained(rows) == [["kept"]]
    assert "NOT KEPT" not in rows["messages_json"][0]
