"""Sets from every importable file of ../shared/data: the funnel adds up, rewards drive selection, secrets stay out."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import polars as pl
import pytest

from trajlake.ingest.import_run import ImportOptions
from trajlake.ingest.inbox import open_inbox
from trajlake.ingest.into_lake import import_into_lake
from trajlake.ingest.judgements import write_judgements
from trajlake.ingest.reward_files import read_rewards
from trajlake.ingest.sources import find_sources
from trajlake.pipelines.curate.cut import CutOptions, cut_sft
from trajlake.pipelines.curate.policy import parse_policy
from trajlake.pipelines.curate.rlvr import cut_rlvr
from trajlake.pipelines.curate.secret_rules import find
from trajlake.pipelines.curate.writers.registry import RLVR, SFT

EVERYTHING = """
[eligibility]
tenants = ["default"]
[integrity]
undeclared = "imports are cut"
[outcome]
statuses = ["completed", "failed", "cancelled", "interrupted", "open"]
truncated = "keep"
[reward]
required = false
minimum = -1.0
[models]
allow = ["*"]
[length]
replies_min = 1
[caps]
per_task = 0
"""
TAU = """
[eligibility]
tenants = ["default"]
source_formats = ["tau-bench"]
[reward]
verifier = "tau-bench"
[models]
allow = ["*"]
[caps]
per_task = 0
[tasks]
attempts_min = 4
"""


@pytest.fixture(scope="module")
def lake(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("real") / "lake")
    import_into_lake(url, [str(shared_data)], ImportOptions(ended=True))
    judged = []
    for folder in ("tau-bench", "inspect"):
        for source in find_sources([str(shared_data / folder)]):
            judged += read_rewards(source, "auto", ())
    with open_inbox(url, "default") as inbox:
        write_judgements(inbox.root, judged, "default")
        inbox.commit()
    return url


@pytest.mark.long
def test_an_sft_set_of_everything_importable_adds_up(lake: str, tmp_path: Path) -> None:
    done = cut_sft(lake, parse_policy(EVERYTHING), str(tmp_path / "set"), CutOptions(families=tuple(SFT)))
    assert done.funnel.adds_up()
    rows = pl.read_parquet(tmp_path / "set/rows/train.parquet")
    ledger = pl.read_parquet(tmp_path / "set/ledger.parquet")
    seen = set(rows["trajectory_id"]) | set(ledger["trajectory_id"])
    from trajlake.pipelines.connect import connect

    known = {
        name
        for (name,) in connect(lake)
        .execute("select trajectory_id from trajectories where kind <> 'judgement'")
        .fetchall()
    }
    assert seen == known, "every trajectory is in the set or in the ledger"
    formats = Counter(name.split("/")[0] for name in rows["trajectory_id"].unique())
    assert formats["tau-bench"] == 200
    assert {
        "atif",
        "claude-code",
        "inspect",
        "langfuse",
        "mini-swe-agent",
        "openai-responses",
        "openhands",
        "otlp",
        "swe-agent",
    } <= set(formats)
    for text in rows["messages_json"]:
        assert not find(text)
    for messages, flags in rows.select("messages_json", "train").iter_rows():
        parsed = json.loads(messages)
        assert len(parsed) == len(flags)
        assert flags[-1]
        assert all(parsed[place]["role"] == "assistant" for place, flag in enumerate(flags) if flag)


def test_every_kept_reply_is_in_exactly_one_row_or_in_the_ledger(lake: str, tmp_path: Path) -> None:
    cut_sft(lake, parse_policy(EVERYTHING), str(tmp_path / "set"), CutOptions())
    rows = pl.read_parquet(tmp_path / "set/rows/train.parquet")
    trained = defaultdict(int)
    for name, flags in rows.select("trajectory_id", "train").iter_rows():
        trained[name] += sum(flags)
    from trajlake.pipelines.connect import connect

    counted = connect(lake).execute(
        "select trajectory_id, count(*) from model_calls "
        "where status = 'kept' and trajectory_id like 'tau-bench/%' group by 1"
    ).fetchall()  # fmt: skip
    assert dict(counted) == {name: n for name, n in trained.items() if name.startswith("tau-bench/")}


def test_tau_bench_s_rewards_drive_rejection_sampling_and_pass_rates(
    lake: str, shared_data: Path, tmp_path: Path
) -> None:
    # Counted from the file itself, without any of our code.
    runs = json.loads((shared_data / "tau-bench/gpt-4o-airline.json").read_bytes())
    passed: dict[int, list[bool]] = defaultdict(list)
    for run in runs:
        passed[run["task_id"]].append(run["reward"] >= 1)
    solved = sum(map(sum, passed.values()))
    sometimes = {task for task, found in passed.items() if 0 < sum(found) < len(found)}
    assert len(runs) == 200

    sft = cut_sft(lake, parse_policy(TAU), str(tmp_path / "sft"), CutOptions(families=("openai",)))
    step = next(step for step in sft.funnel.steps if step.stage == "reward")
    assert (step.before, step.after, step.dropped) == (200, solved, {"low_reward": 200 - solved})
    assert sft.rows == solved

    rlvr = cut_rlvr(lake, parse_policy(TAU), str(tmp_path / "rlvr"), CutOptions(families=tuple(RLVR)))
    assert rlvr.funnel.adds_up()
    tasks = pl.read_parquet(tmp_path / "rlvr/tasks/train.parquet")
    rates = {int(task): (n, k) for task, n, k in tasks.select("task_id", "pass_n", "pass_k").iter_rows()}
    assert rates == {task: (len(passed[task]), sum(passed[task])) for task in sometimes}
    truth = {run["task_id"]: run["info"]["task"]["actions"] for run in runs}
    for task, text, prompt in tasks.select("task_id", "ground_truth_json", "prompt_json").iter_rows():
        assert json.loads(text)["actions"] == truth[int(task)]
        assert json.dumps(truth[int(task)]) not in prompt


def test_sql_counts_the_same_pass_rates(lake: str) -> None:
    from trajlake.pipelines.connect import connect
    from trajlake.pipelines.reports import report

    found = connect(lake).execute(report("pass_rates").sql).fetchall()
    tau = [(attempts, passed) for _, _, verifier, _, _, attempts, passed in found if verifier == "tau-bench"]
    assert len(tau) == 50
    assert (sum(n for n, _ in tau), sum(k for _, k in tau)) == (200, 84)


def test_a_planted_evaluation_prompt_and_planted_secrets_are_caught_among_real_runs(
    lake: str, shared_data: Path, tmp_path: Path
) -> None:
    runs = json.loads((shared_data / "tau-bench/gpt-4o-airline.json").read_bytes())
    asked = next(m["content"] for m in runs[7]["traj"] if m["role"] == "user")
    (tmp_path / "eval.jsonl").write_text(json.dumps({"prompt": f"{asked} {asked}"}) + "\n")
    more = '[contamination]\nfiles = ["eval.jsonl"]\nwords = 8\n'
    loaded = parse_policy(EVERYTHING + more, str(tmp_path / "p.toml"))
    done = cut_sft(lake, loaded, None, CutOptions(dry_run=True))
    caught = done.funnel.ledger().filter(pl.col("reason") == "contaminated")["trajectory_id"].to_list()
    assert f"tau-bench/gpt-4o-airline/{runs[7]['task_id']}-{runs[7]['trial']}" in caught
    assert len(caught) < 12


def test_the_set_of_real_sessions_is_rebuilt_to_the_byte(lake: str, tmp_path: Path) -> None:
    from tests.pipelines.curate.test_sets import hashes
    from trajlake.pipelines.curate.rebuild import rebuild

    cut_sft(lake, parse_policy(EVERYTHING), str(tmp_path / "one"), CutOptions(families=("openai", "trl"), pin="real"))
    done = rebuild(lake, str(tmp_path / "one"), str(tmp_path / "two"), CutOptions())
    assert done.differences == []
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    shutil.rmtree(tmp_path / "two")
