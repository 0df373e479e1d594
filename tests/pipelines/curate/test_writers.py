"""Each family's file, read back by the reader its users use: what went in comes out, or was refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import msgspec
import pandas as pd
import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy, rewards
from trajlake.pipelines.curate.chat_shape import messages_of, tool_message
from trajlake.pipelines.curate.cut import CutOptions, cut_sft
from trajlake.pipelines.curate.manifest import Manifest
from trajlake.pipelines.curate.rebuild import check_share
from trajlake.pipelines.curate.rlvr import cut_rlvr
from trajlake.pipelines.curate.writers.registry import RLVR, SFT

datasets.disable_progress_bars()


@pytest.mark.parametrize(
    "content", [r'"caf\u00e9 \/ \\u0041 \n"', r'"\ud83d\ude00"', r'"\u0007\b"', '"é \x7f <"', "null"]
)
def test_a_message_stands_in_a_row_as_a_json_writer_would_write_it(content: str) -> None:
    # Files take these texts as they stand: two spellings of one text would be two rows.
    for chat in (
        messages_of(f'{{"content":{content},"role":"user"}}')[0],
        tool_message("c1", msgspec.Raw(content.encode())),
    ):
        tree = msgspec.json.decode(chat.text)
        assert tree["content"] == json.loads(content)
        assert chat.text == msgspec.json.encode(tree)
        assert chat.text.startswith(b'{"role":')


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": properties}},
    }


def cut(folder: Path, runs: list[Any], **tables: dict[str, Any]) -> Manifest:
    done = cut_sft(lake_of(folder, runs), policy(**tables), str(folder / "set"), CutOptions(families=tuple(SFT)))
    assert done.manifest is not None
    return done.manifest


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def load(path: Path, folder: Path) -> datasets.Dataset:
    kind = "json" if path.suffix == ".jsonl" else "parquet"
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(folder / "cache"))


def two_calls() -> Run:
    """Text beside two parallel calls, whose arguments differ in keys and hold a real null."""
    run = Run("parallel", tools=[tool("run", m="integer"), tool("look", t="string", since="null")]).say("user", "go")
    seq = run.reply("both at once", [("run", '{"m": 1}'), ("look", '{"t":2,"since":null}')])
    run.result(seq, "one", 0).result(seq, "two", 1)
    run.reply("done")
    return run.end()


def masked() -> Run:
    """A failed step between two good ones: its reply is context."""
    run = Run("masked").say("user", "try")
    run.result(run.reply("first", [("run", '{"a":1}')]), "fine")
    run.result(run.reply("fails", [("run", '{"a":2}')]), "boom", status="error")
    run.reply("last")
    return run.end()


def called(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]


def test_parallel_calls_and_the_text_beside_them_survive_in_every_family(tmp_path: Path) -> None:
    # CASES.md E10: one assistant message, its text, both calls in order, one result each; and E3's real null.
    manifest = cut(tmp_path, [two_calls()])
    folder = tmp_path / "set"
    text = [("run", '{"m": 1}'), ("look", '{"t":2,"since":null}')]
    objects = [("run", {"m": 1}), ("look", {"t": 2, "since": None})]
    for family, reply in {
        "openai": lines(folder / "openai/train.jsonl")[0]["messages"][1],
        "axolotl": lines(folder / "axolotl/train.jsonl")[0]["messages"][1],
        "prime-rl": lines(folder / "prime-rl/train.jsonl")[0]["messages"][1],
        "trl-text": load(folder / "trl-text-messages/train.parquet", tmp_path)[0]["messages"][1],
        "skyrl": load(folder / "skyrl/train.parquet", tmp_path)[1]["messages"][1],
    }.items():
        assert reply["content"] == "both at once", family
        assert called(reply) == text, family
    reply = load(folder / "trl-messages/train.parquet", tmp_path)[0]["messages"][1]
    assert called(reply) == objects
    trace = [json.loads(line) for line in next((folder / "agent-traces/train").iterdir()).read_text().splitlines()]
    assert trace[0]["type"] == "session"
    assert [(c["name"], c["arguments"]) for c in trace[2]["message"]["toolCalls"]] == text
    # verl reads tools as structs: these two would gain each other's keys, so the family says no.
    assert manifest.refused["verl-sft"] == {"tools": 1}


def test_no_foreign_keys_appear_and_tools_come_back_as_they_were(tmp_path: Path) -> None:
    # CASES.md E1 and E3 (first half).
    one = Run("one", tools=[tool("run", a="integer")]).say("user", "one")
    one.result(one.reply("x", [("run", '{"m":1}')]), "o")
    one.reply("done with one")
    two = Run("two", tools=[tool("run", b="string")]).say("user", "two")
    two.result(two.reply("y", [("run", '{"t":2}')]), "o")
    two.reply("done with two")
    cut(tmp_path, [one.end(), two.end()])
    folder = tmp_path / "set"
    for name in ("trl-messages", "trl-prompt-completion", "trl-text-messages"):
        rows = load(folder / name / "train.parquet", tmp_path).to_list()
        shown = {json.dumps(row["tools"], sort_keys=True) for row in rows}
        assert shown == {
            json.dumps([tool("run", a="integer")], sort_keys=True),
            json.dumps([tool("run", b="string")], sort_keys=True),
        }
        for row in rows:
            for message in [*row.get("messages", []), *row.get("prompt", []), *row.get("completion", [])]:
                assert None not in message.values()
    rows = load(folder / "trl-messages/train.parquet", tmp_path).to_list()
    assert sorted(json.dumps(called(row["messages"][1])[0][1]) for row in rows) == ['{"m": 1}', '{"t": 2}']


def test_each_reader_sees_a_stated_type(tmp_path: Path) -> None:
    # CASES.md E5: `datasets` decodes, pandas and polars see JSON text; no file is read by the wrong one.
    cut(tmp_path, [two_calls()])
    path = tmp_path / "set/trl-messages/train.parquet"
    assert isinstance(load(path, tmp_path).to_list()[0]["messages"][0], dict)
    assert isinstance(pd.read_parquet(path)["messages"][0][0], str)
    table = pl.read_parquet(tmp_path / "set/rows/train.parquet")
    assert isinstance(table["messages_json"][0], str)
    assert isinstance(pd.read_parquet(tmp_path / "set/rows/train.parquet")["messages_json"][0], str)


def test_a_column_that_is_null_for_long_keeps_its_type(tmp_path: Path) -> None:
    # CASES.md E4, against the writer itself: 10,000 rows without, then one with.
    from trajlake.pipelines.curate.sample import ROW_SCHEMA
    from trajlake.pipelines.curate.writers.family import ParquetRows

    rows = ParquetRows(str(tmp_path), "rows", ROW_SCHEMA)
    empty = {
        field.name: None
        if field.nullable
        else {"string": "", "int32": 0, "int64": 0, "bool": False}.get(str(field.type), [])
        for field in ROW_SCHEMA
    }
    for number in range(10_001):
        rows.add(
            "train",
            {**empty, "sample_id": str(number), "stop_reason": "", "logprobs_json": "{}" if number == 10_000 else None},
            10,
        )
    rows.close()
    found = load(tmp_path / "rows/train.parquet", tmp_path)
    assert found[10_000]["logprobs_json"] == "{}"
    assert found[0]["logprobs_json"] is None


def test_masks_reach_the_families_that_have_them_and_the_others_refuse_or_step(tmp_path: Path) -> None:
    manifest = cut(tmp_path, [masked()])
    folder = tmp_path / "set"
    flags = [m["training"] for m in lines(folder / "axolotl/train.jsonl")[0]["messages"]]
    assert flags == [False, True, False, False, False, True]
    weights = [
        m.get("weight", 1) for m in lines(folder / "openai/train.jsonl")[0]["messages"] if m["role"] == "assistant"
    ]
    assert weights == [1, 0, 1]
    assert not (folder / "trl-messages").exists()
    assert manifest.refused["trl"] == {"mask": 1}
    assert manifest.refused["verl-sft"] == {"mask": 1}
    pairs = load(folder / "trl-prompt-completion/train.parquet", tmp_path).to_list()
    assert [row["completion"][0]["content"] for row in pairs] == ["first", "last"]
    stepped = lines(folder / "prime-rl/train.jsonl")
    assert [row["completion"][0]["content"] for row in stepped] == ["first", "last"]
    assert [row["messages"][-1]["content"] for row in load(folder / "skyrl/train.parquet", tmp_path).to_list()] == [
        "first",
        "last",
    ]


def test_verl_reads_messages_and_tools_with_pandas(tmp_path: Path) -> None:
    cut(tmp_path, [Run("plain", tools=[tool("run", a="integer")]).simple()])
    frame = pd.read_parquet(tmp_path / "set/verl-sft/train.parquet")
    messages = frame["messages"][0]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == '{"n": 0, "what": "look around"}'
    tools = [dict(one) for one in frame["tools"][0]]
    assert tools == [tool("run", a="integer")]


def test_the_last_message_is_the_last_trained_reply(tmp_path: Path) -> None:
    run = Run("trails").say("user", "go")
    run.reply("good")
    run.say("user", "more")
    run.reply("of another", model="other")
    cut(tmp_path, [run.end()])
    assert [m["content"] for m in lines(tmp_path / "set/openai/train.jsonl")[0]["messages"]] == ["go", "good"]


def test_a_null_content_is_written_as_empty_text_and_emitted_arguments_stay_byte_for_byte(tmp_path: Path) -> None:
    odd = '{ "big": 9007199254740993,  "dup":1, "dup":2 }'
    run = Run("odd").say("user", "go")
    run.result(run.reply(None, [("run", odd)]), "o")
    run.reply("done")
    manifest = cut(tmp_path, [run.end()])
    folder = tmp_path / "set"
    assert called(lines(folder / "openai/train.jsonl")[0]["messages"][1]) == [("run", odd)]
    shown = lines(folder / "axolotl/train.jsonl")[0]["messages"][1]
    assert shown["content"] == ""
    assert called(shown) == [("run", odd)]
    # As an object it would say something else: the object family refuses the row by name.
    assert manifest.refused["trl"] == {"arguments": 1}


def test_token_ids_and_logprobs_are_kept_where_they_were_recorded(tmp_path: Path) -> None:
    run = Run("ids").say("user", "go")
    run.reply("yes", token_ids=[1, 2, 3], logprobs=[-0.1, -0.2, -0.3])
    cut(tmp_path, [run.end()])
    row = pl.read_parquet(tmp_path / "set/rows/train.parquet").row(0, named=True)
    assert json.loads(row["completion_ids_json"]) == {"1": [1, 2, 3]}
    assert json.loads(row["logprobs_json"]) == {"1": [-0.1, -0.2, -0.3]}


def test_a_lone_surrogate_is_exported_as_u_fffd_and_counted(tmp_path: Path) -> None:
    run = Run("surrogate").say("user", "go")
    run.reply("ok", raw='{"role":"assistant","content":"half \\ud83d"}')
    cut(tmp_path, [run.end()])
    row = pl.read_parquet(tmp_path / "set/rows/train.parquet").row(0, named=True)
    assert json.loads(row["messages_json"])[1]["content"] == "half \ufffd"
    assert row["surrogates"] == 1


def test_the_loader_check_finds_masks_that_were_ignored(tmp_path: Path) -> None:
    # CASES.md E7.
    manifest = cut(tmp_path, [masked()])
    assert 0 < manifest.trained_share < 0.6
    assert check_share(manifest, manifest.trained_share * 1.005) is None
    assert "masks something else" in str(check_share(manifest, 1.0))
    assert check_share(manifest, 0.0) is not None


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    runs = []
    for n in range(4):
        run = Run(f"a{n}", task={"task_id": "a"}).say("system", "Be brief.").say("user", "What is six times seven?")
        run.reply("forty-two" if n else "no idea")
        runs.append(run.end())
    told = Run("b0", task={"task_id": "b"}).say("user", "Say the word: xylophone-answer")
    told.reply("xylophone-answer")
    other = Run("b1", task={"task_id": "b"}).say("user", "Say the word: xylophone-answer")
    other.reply("no")
    details = {"ground_truth": "forty-two", "environment": "calculator@sha256:1", "arguments": {"unit": "none"}}
    lake = lake_of(
        tmp_path,
        [*runs, told.end(), other.end(), rewards({f"a{n}": int(n > 0) for n in range(4)}, details=details),
         rewards({"b0": 1, "b1": 0}, details={**details, "ground_truth": "xylophone-answer"})],
    )  # fmt: skip
    done = cut_rlvr(lake, policy(tasks={"attempts_min": 2}), str(tmp_path / "tasks"), CutOptions(families=tuple(RLVR)))
    assert done.manifest is not None
    ledger = pl.read_parquet(tmp_path / "tasks/ledger.parquet")
    assert ledger["reason"].to_list() == ["answer_in_prompt"]
    return tmp_path / "tasks"


def test_rlvr_tasks_carry_pass_rates_and_references_and_no_answer_in_the_prompt(tasks: Path) -> None:
    row = pl.read_parquet(tasks / "tasks/train.parquet").row(0, named=True)
    assert (row["pass_n"], row["pass_k"], row["pass_policy"]) == (4, 3, "m")
    assert json.loads(row["ground_truth_json"]) == "forty-two"
    assert json.loads(row["environment_json"]) == "calculator@sha256:1"
    assert "forty-two" not in row["prompt_json"]


def test_rlvr_families_spell_it_as_their_trainers_do(tasks: Path, tmp_path: Path) -> None:
    verl = pd.read_parquet(tasks / "verl-rl/train.parquet").iloc[0]
    assert verl["reward_model"] == {"style": "rule", "ground_truth": "forty-two"}
    assert [dict(m) for m in verl["prompt"]][1] == {"role": "user", "content": "What is six times seven?"}
    leaf = json.loads(verl["extra_info"]["tools_kwargs"])["run"]
    assert json.loads(leaf) == {"create_kwargs": {"ground_truth": "forty-two"}}
    sky = pd.read_parquet(tasks / "skyrl-rl/train.parquet").iloc[0]
    assert (sky["env_class"], sky["reward_spec"]["ground_truth"]) == ("calculator@sha256:1", "forty-two")
    line = lines(tasks / "verifiers/train.jsonl")[0]
    assert line["answer"] == "forty-two"
    assert json.loads(line["info"])["pass"] == {"n": 4, "k": 3, "policy": "m"}
    grpo = load(tasks / "trl-grpo/train.parquet", tmp_path)[0]
    assert grpo["environment"] == "calculator@sha256:1"
    assert grpo["prompt"][0] == {"role": "system", "content": "Be brief."}
    for row in (verl["prompt"], sky["prompt"], line["prompt"], grpo["prompt"]):
        assert "forty-two" not in str(row)
