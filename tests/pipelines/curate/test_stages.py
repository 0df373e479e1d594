"""Every stage drops what it should, with its reason, one ledger row each; masks keep steps as context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy, policy_text, rewards
from tests.pipelines.segments import Story
from trajlake.pipelines.commands.curate import _show
from trajlake.pipelines.curate import policy as policy_module
from trajlake.pipelines.curate.cut import Cut, CutOptions, cut_sft
from trajlake.pipelines.curate.explain import explain
from trajlake.pipelines.curate.policy import Policy, parse_policy
from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.events import Annotated, TaskEnded, TaskStarted, ToolIntent

Tables = dict[str, Any]


def dry(folder: Path, runs: list[Any], **tables: Tables) -> Cut:
    lake = lake_of(folder, runs)
    cut = cut_sft(lake, policy(str(folder / "policy.toml"), **tables), None, CutOptions(dry_run=True))
    assert cut.funnel.adds_up()
    return cut


def reasons(cut: Cut) -> dict[str, str]:
    ledger = cut.funnel.ledger()
    return dict(ledger.select("trajectory_id", "reason").iter_rows())


def test_eligibility_denies_unless_granted(tmp_path: Path) -> None:
    runs = [
        Run("ours").simple("ours"),
        Run("theirs", tenant="other").simple("theirs"),
        Run("of a person", subjects=("u1",)).simple("person"),
        Run("named").simple("named"),
    ]
    refuse = {"refuse_subjects": ["u1"], "refuse_trajectories": ["named"]}
    cut = dry(tmp_path, runs, eligibility=refuse)
    assert reasons(cut) == {"theirs": "no_consent", "of a person": "refused", "named": "refused"}
    assert cut.rows == 1


def test_the_empty_policy_lets_nothing_in(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, [Run("one").simple()])
    cut = cut_sft(lake, parse_policy(""), None, CutOptions(dry_run=True))
    assert cut.rows == 0
    assert reasons(cut) == {"one": "no_consent"}


def test_an_effect_in_doubt_keeps_its_trajectory_out(tmp_path: Path) -> None:
    # CASES.md C1 and E22: the journal ends in an intent; nothing is invented, the turn does not train.
    run = Run("crashed").say("user", "pay")
    seq = run.reply("paying", [("run", "{}")])
    run.story.add(
        ToolIntent(
            action_id=f"{seq}.0", tool="run", arguments_hash="0" * 64, key="1" * 64, effect="external", reply=seq
        )
    )
    run.story.add(TaskEnded(status="failed"))
    open_run = Run("unanswered").say("user", "look")
    open_run.reply("looking", [("run", "{}")])
    open_run.reply("without an answer")
    cut = dry(tmp_path, [run, open_run.end()])
    assert reasons(cut) == {"crashed": "in_doubt", "unanswered": "malformed"}


def test_a_conflict_and_a_broken_chain_keep_a_trajectory_out(tmp_path: Path) -> None:
    forged = Run("forged").simple("forged")
    event = forged.story.landed[3].event
    import msgspec

    forged.story.landed[3] = forged.story.landed[3]._replace(
        event=msgspec.structs.replace(event, recorded_at=event.recorded_at + 1)
    )
    cut = dry(tmp_path, [Run("good").simple(), forged])
    assert reasons(cut) == {"forged": "integrity"}
    assert "does not hash" in cut.funnel.ledger()["detail"][0]


def test_outcomes_are_those_the_policy_lists_and_truncation_needs_a_reward(tmp_path: Path) -> None:
    cut_off = Run("cut off").say("user", "go")
    cut_off.reply("I will now", stop_reason="length")
    cut_off.end()
    paid = Run("cut off, solved").say("user", "go on")
    paid.reply("I will then", stop_reason="length")
    paid.end()
    failed = Run("failed").simple("x")
    failed.story.landed.pop()
    failed.story.prev = failed.story.landed[-1].event.hash
    failed.end("failed")
    going = Run("going on").simple("y")
    going.story.landed.pop()
    runs = [Run("good").simple(), cut_off, paid, failed, going, rewards({"cut off, solved": 1})]
    cut = dry(tmp_path, runs, outcome={"statuses": ["completed"]})
    assert reasons(cut) == {"failed": "errored", "cut off": "truncated", "going on": "not_ended"}
    assert dry(tmp_path / "keep", runs, outcome={"truncated": "keep"}).rows == 5
    assert reasons(dry(tmp_path / "drop", runs, outcome={"truncated": "drop"}))["cut off, solved"] == "truncated"


def test_an_empty_set_is_said_with_what_took_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    going = [Run(name).simple(name) for name in ("a", "b")]
    for run in going:
        run.story.landed.pop()
    _show(dry(tmp_path, going, outcome={"statuses": ["completed"]}), False)
    assert "the set would be empty: most went at 3 outcome: not_ended 2 of 2 trajectories" in capsys.readouterr().out


def test_rejection_sampling_takes_a_versioned_verifier_s_reward(tmp_path: Path) -> None:
    runs = [Run(name).simple(name) for name in ("solved", "half", "unjudged", "unversioned", "by another")]
    judged = [
        rewards({"solved": 1, "half": 0.5}), rewards({"unversioned": 1}, version=""),
        rewards({"by another": 1}, verifier="w"),
    ]  # fmt: skip
    cut = dry(tmp_path, [*runs, *judged], reward={"required": True, "verifier": "v"})
    assert reasons(cut) == {
        "half": "low_reward", "unjudged": "no_reward", "unversioned": "no_reward", "by another": "no_reward",
    }  # fmt: skip
    assert "0.5 by v 1" in cut.funnel.ledger()["detail"].to_list()


def test_a_flaky_verifier_sets_its_whole_task_aside_and_is_visible_in_sql(tmp_path: Path) -> None:
    task = {"task_id": "flaky"}
    runs = [Run("a", task=task).simple("a"), Run("b", task=task).simple("b"), Run("c").simple("c")]
    cut = dry(tmp_path, [*runs, rewards({"a": [1, 0], "b": 1, "c": [1, 1]})], reward={"required": True})
    assert reasons(cut) == {"a": "low_reward", "b": "flaky_verifier"}
    assert cut.rows == 1
    from trajlake.pipelines.connect import connect
    from trajlake.pipelines.reports import report

    connection = connect(tmp_path / "lake")
    found = connection.execute(report("flaky_verifiers").sql).fetchall()
    assert [row[1] for row in found] == ["a"]


def test_reading_the_fix_out_of_the_history_is_a_leak(tmp_path: Path) -> None:
    # CASES.md E16.
    run = Run("cheat").say("user", "fix it")
    seq = run.reply("let me look", [("run", json.dumps({"command": "git log --all -S frobnicate"}))])
    run.result(seq, "commit 0123abc")
    seq = run.reply("there", [("run", json.dumps({"command": "git show 0123abcdef0"}))])
    run.result(seq, "+ the fix")
    run.reply("fixed")
    honest = Run("honest").say("user", "fix it")
    seq = honest.reply("let me look", [("run", json.dumps({"command": "git log --oneline | head -3 && git status"}))])
    honest.result(seq, "abc")
    honest.reply("fixed by thinking")
    cut = dry(tmp_path, [run.end(), honest.end(), rewards({"cheat": 1, "honest": 1})], reward={"required": True})
    assert reasons(cut) == {"cheat": "leak"}
    assert "git log --all -S" in cut.funnel.ledger()["detail"][0]


def test_a_policy_s_own_leak_patterns_count_too(tmp_path: Path) -> None:
    run = Run("reads gold").say("user", "fix it")
    run.result(run.reply("cat", [("run", '{"command":"cat /gold/patch.diff"}')]), "+ fix")
    run.reply("done")
    assert reasons(dry(tmp_path, [run.end()], leak={"patterns": ["/gold/"]})) == {"reads gold": "leak"}


def test_structure_names_what_is_wrong(tmp_path: Path) -> None:
    unshown = Run("unshown tool").say("user", "go")
    unshown.result(unshown.reply("x", [("nosuch", "{}")]), "o")
    unshown.reply("y")
    picture = Run("picture").say("user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}])
    picture.reply("I see")
    cut = dry(tmp_path, [unshown.end(), picture.end(), Run("good").simple()])
    assert reasons(cut) == {"unshown tool": "tool_not_shown", "picture": "not_text"}


def test_loops_and_lengths(tmp_path: Path) -> None:
    loop = Run("loop").say("user", "go")
    for _ in range(4):
        loop.result(loop.reply("again", [("run", '{"a":1}')]), "o")
    loop.reply("stop")
    babble = Run("babble").say("user", "speak")
    babble.reply("no end of this here " * 80)
    short = Run("short").say("user", "hi")
    short.reply("hello")
    long = Run("long").say("user", "tell")
    long.reply("word " * 30)
    long.say("user", "more")
    long.reply(" ".join(f"word{n}" for n in range(900)))
    tables: dict[str, Tables] = {"length": {"replies_min": 2, "tokens_max": 1000}}
    cut = dry(tmp_path, [loop.end(), babble.end(), short.end(), long.end(), Run("good").simple()], **tables)
    assert reasons(cut) == {"loop": "loop", "babble": "loop", "short": "too_short", "long": "too_long"}


def test_a_row_whose_prompt_fills_the_limit_has_nothing_to_train(tmp_path: Path) -> None:
    # CASES.md E6: 200 tokens of prompt, a limit of 64: dropped by name and counted, not silently empty.
    run = Run("long prompt").say("user", "word " * 160)
    run.reply("ok")
    cut = dry(tmp_path, [run.end()], length={"tokens_max": 64, "replies_min": 1})
    assert reasons(cut) == {"long prompt": "no_trainable_tokens"}
    step = next(step for step in cut.funnel.steps if step.stage == "length")
    assert step.dropped == {"no_trainable_tokens": 1}


def count_words(text: str) -> int:
    """A counter as a policy names one."""
    return len(text.split())


def test_the_target_s_own_tokenizer_counts_where_the_policy_names_it(tmp_path: Path) -> None:
    run = Run("words").say("user", "one two three four")
    run.reply("five six")
    name = f"{__name__}:count_words"
    cut = dry(tmp_path, [run.end()], length={"tokens_max": 5, "replies_min": 1, "counter": name})
    assert reasons(cut) == {"words": "too_long"}
    with pytest.raises(UserError, match="module:function"):
        dry(tmp_path / "bad", [run], length={"counter": "nosuch.module:f"})


def test_failed_steps_and_broken_arguments_are_context_not_targets(tmp_path: Path) -> None:
    run = Run("errors").say("user", "go")
    run.result(run.reply("broken", [("run", "{not json")]), "parse error", status="refused")
    run.result(run.reply("fails", [("run", '{"a":1}')]), "boom", status="error")
    run.result(run.reply("works", [("run", '{"a":2}')]), "fine")
    run.reply("done")
    lake = lake_of(tmp_path, [run.end()])
    cut = cut_sft(lake, policy(), str(tmp_path / "set"), CutOptions())
    row = pl.read_parquet(tmp_path / "set" / "rows" / "train.parquet").row(0, named=True)
    said = [m["content"] for m, flag in zip(json.loads(row["messages_json"]), row["train"], strict=True) if flag]
    assert said == ["works", "done"]
    masking = next(step for step in cut.funnel.steps if step.stage == "masking")
    assert masking.noted == {"bad_arguments": 1, "failed_step": 1}
    strict = policy(structure={"bad_arguments": "drop"})
    assert cut_sft(lake, strict, None, CutOptions(dry_run=True)).rows == 0


def test_exact_duplicates_differ_in_ids_and_times_only_and_the_best_reward_stays(tmp_path: Path) -> None:
    def of(name: str, at: str, more: str = "") -> Run:
        run = Run(name, task={"task_id": "same"}).say("user", f"At {at} do it{more}")
        run.result(run.reply("ok", [("run", json.dumps({"id": f"call_{name}"}))]), f"out {name}")
        run.reply(f"done at {at}")
        return run.end()

    runs = [of("a", "2026-01-01T10:00:00Z"), of("b", "2026-02-02T11:30:00Z"), of("c", "2026-01-01T10:00:00Z", " twice")]
    cut = dry(tmp_path, [*runs, rewards({"a": 0.2, "b": 0.9, "c": 0.1})], reward={"minimum": 0.0})
    assert reasons(cut) == {"a": "dup_exact"}


def test_near_duplicates_keep_the_best_of_a_cluster(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(300)]

    def of(name: str, text: list[str]) -> Run:
        run = Run(name).say("user", "write")
        run.reply(" ".join(text))
        return run.end()

    near = [*words[:150], "changed", *words[151:]]
    runs = [of("one", words), of("two", near), of("three", words[::-1])]
    cut = dry(tmp_path, [*runs, rewards({"two": 1})], duplicates={"near": True})
    assert reasons(cut) == {"one": "dup_near"}
    assert dry(tmp_path / "far", runs, duplicates={"near": True, "threshold": 0.999}).rows == 3


def test_a_planted_evaluation_prompt_is_caught_in_prompt_and_in_completion(tmp_path: Path) -> None:
    question = (
        "A farmer has seventeen sheep and all but nine run away, so how many sheep does the farmer have left over?"
    )
    asked = Run("asked").say("user", f'Solve this:\n"{question.upper()}"')
    asked.reply("nine")
    told = Run("told").say("user", "tell me a riddle")
    told.reply(f"Here is one. {question}")
    listed = Run("listed", task={"task_id": "eval-7"}).simple("listed")
    (tmp_path / "evals.jsonl").write_text(json.dumps({"prompt": question, "answer": "9"}) + "\n")
    tables: dict[str, Tables] = {"contamination": {"files": ["evals.jsonl"], "task_ids": ["eval-7"]}}
    cut = dry(tmp_path, [asked.end(), told.end(), listed, Run("good").simple()], **tables)
    assert reasons(cut) == {"asked": "contaminated", "told": "contaminated", "listed": "contaminated"}
    details = cut.funnel.ledger()["detail"].to_list()
    assert sum(detail.startswith("evals.jsonl: a farmer has") for detail in details) == 2


def test_caps_keep_the_best_and_are_drawn_by_seed(tmp_path: Path) -> None:
    task = {"task_id": "popular"}
    runs = [Run(f"r{n}", task=task).simple(f"take {n}") for n in range(6)]
    judged = rewards({f"r{n}": n / 10 for n in range(6)})
    cut = dry(tmp_path, [*runs, Run("rare").simple("rare"), judged], caps={"per_task": 2}, reward={"minimum": 0.0})
    assert sorted(reasons(cut)) == ["r0", "r1", "r2", "r3"]
    assert set(reasons(cut).values()) == {"capped"}


def test_a_split_is_by_group_and_never_by_row(tmp_path: Path) -> None:
    runs = [Run(f"{repo}-{n}", task={"task_id": f"{repo}-{n}", "repo": repo}).simple(f"{repo} {n}")
            for repo in "abcdefgh" for n in range(2)]  # fmt: skip
    lake = lake_of(tmp_path, runs)
    cut_sft(lake, policy(split={"validation": 0.5, "group": "/repo"}), str(tmp_path / "set"), CutOptions())
    parts = {name: pl.read_parquet(tmp_path / "set" / "rows" / f"{name}.parquet") for name in ("train", "validation")}
    groups = {name: set(rows["split_group"]) for name, rows in parts.items()}
    assert all(groups.values())
    assert not groups["train"] & groups["validation"]


def test_the_gate_replay_same_is_about_live_runs_only(tmp_path: Path) -> None:
    judge = Story("judge/replay/1/00", model="judge", version="")
    judge.token = 0
    judge.add(TaskStarted(task={}, origin="judgement", model="judge"))
    for name, text in (("same", "same"), ("differs", "differs at 12")):
        judge.add(Annotated(tenant="t", trajectory_id=name, author="replay", label="replay", text=text))
    judge.add(TaskEnded(status="completed"))
    runs = [Run("same").simple("s"), Run("differs").simple("d"), Run("never").simple("n")]
    cut = dry(tmp_path, [*runs, judge], replay={"required": True})
    assert reasons(cut) == {"differs": "replay_differs", "never": "not_replayed"}


def test_personal_data_is_dropped_or_redacted_with_stable_placeholders(tmp_path: Path) -> None:
    run = Run("personal").say("user", "Mail ann@example.org and bob@example.org, then ann@example.org again.")
    run.reply("Mailed ann@example.org")
    lake = lake_of(tmp_path, [run.end()])
    dropped = cut_sft(lake, policy(pii={"finder": "patterns"}), None, CutOptions(dry_run=True))
    assert reasons(dropped) == {"personal": "pii"}
    cut_sft(lake, policy(pii={"finder": "patterns", "action": "redact"}), str(tmp_path / "set"), CutOptions())
    row = pl.read_parquet(tmp_path / "set" / "rows" / "train.parquet").row(0, named=True)
    said = [message["content"] for message in json.loads(row["messages_json"])]
    assert said == ["Mail <email_1> and <email_2>, then <email_1> again.", "Mailed <email_1>"]
    assert json.loads(row["redactions"])["counts"] == {"email": 2}


def test_explain_says_why_a_trajectory_is_in_or_out(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, [Run("in").simple("a"), Run("out").simple("b"), rewards({"in": 1, "out": 0})])
    loaded = policy(reward={"required": True})
    assert explain(lake, "in", loaded, CutOptions())[0].kept == [(0, "train")]
    out = explain(lake, "out", loaded, CutOptions())[0]
    assert not out.is_in
    assert out.dropped[0][1:3] == ("reward", "low_reward")
    with pytest.raises(UserError, match="no such trajectory"):
        explain(lake, "nobody", loaded, CutOptions())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[models]\nalow = []", "unknown field `alow`"),
        ("[caps]\nper_task = -1", "per_task"),
        ("nonsense", "not TOML"),
        ('[leak]\npatterns = ["("]', "leak.patterns"),
        ('[contamination]\nfiles = ["nosuch.jsonl"]', "nosuch.jsonl"),
        ('name = "a/b"', "name"),
    ],
)
def test_a_policy_is_refused_with_the_key_that_is_wrong(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_policy(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_s_hash_is_of_its_meaning_and_of_the_files_it_names(tmp_path: Path) -> None:
    path = str(tmp_path / "policy.toml")
    (tmp_path / "e.jsonl").write_text('"one two three four five six"')
    text = policy_text(contamination={"files": ["e.jsonl"]})
    first = parse_policy(text, path).sha256
    assert parse_policy("# a comment\n" + text, path).sha256 == first
    (tmp_path / "e.jsonl").write_text('"one two three four five seven"')
    assert parse_policy(text, path).sha256 != first


def test_every_key_of_a_policy_is_explained() -> None:
    told = (Path(policy_module.__file__).parent / "README.md").read_text()
    tables = msgspec.structs.fields(Policy)
    assert {"seed", "eligibility", "tasks"} <= {table.name for table in tables}
    for table in tables:
        keys = msgspec.structs.fields(table.type) if isinstance(table.default, msgspec.Struct) else (table,)
        for key in keys:
            assert f"`{key.name}`" in told, f"{table.name}.{key.name}"
