"""A row is one row only where a chat template renders what the model saw; else it is one row per step, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy
from trajlake.pipelines.curate.cut import Cut, CutOptions, cut_sft
from trajlake.pipelines.curate.prefix_check import Template
from trajlake.runtime.cli_errors import UserError

PLAIN = """\
{%- if tools %}<tools>{{ tools | tojson }}</tools>
{% endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments }}</call>{% endfor %}<|end|>
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Keeps prefixes: what was rendered once never changes."""

DROPS_THOUGHT = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}<|{{ m.role }}|>
{%- if m.reasoning_content and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments }}</call>{% endfor %}<|end|>
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""As every thinking template: reasoning before the last user message disappears."""

FIRST_CALL_ONLY = PLAIN.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
REFUSES_PARALLEL = PLAIN.replace(
    "{%- for c in m.tool_calls",
    "{%- if (m.tool_calls or [])|length > 1 %}{{ raise_exception('one call') }}{% endif %}\n{%- for c in m.tool_calls",
)
NEVER_A_PREFIX = PLAIN.replace("<|assistant|>{% endif %}", "<|open|>{% endif %}")


def cut(folder: Path, runs: list[Run], template: str, **more: Any) -> tuple[Cut, pl.DataFrame]:
    lake = lake_of(folder, runs)
    (folder / "chat.jinja").write_text(template)
    loaded = policy(str(folder / "policy.toml"), prefix={"template": "chat.jinja", **more})
    done = cut_sft(lake, loaded, str(folder / "set"), CutOptions(families=("openai", "trl")))
    path = folder / "set/rows/train.parquet"
    return done, pl.read_parquet(path) if path.exists() else pl.DataFrame()


def reasoned() -> Run:
    """Two user messages; both replies were thought about."""
    run = Run("reasoned").say("user", "first")
    for text in ("one", "two"):
        wire = {"role": "assistant", "content": text, "reasoning_content": f"thinking {text}"}
        run.reply(text, raw=json.dumps(wire))
        run.say("user", f"after {text}")
    run.reply("three")
    return run.end()


def test_a_template_that_keeps_prefixes_gives_one_row(tmp_path: Path) -> None:
    # CASES.md E9: five turns of tools; the mask's texts are the full render's.
    run = Run("tools").say("user", "go")
    for n in range(5):
        run.result(run.reply(f"step {n}", [("run", json.dumps({"n": n}))]), f"out {n}")
    run.reply("done")
    _, rows = cut(tmp_path, [run.end()], PLAIN)
    assert rows["step_no"].to_list() == [None]
    assert rows["template_sha"][0] == Template(PLAIN).sha256


def test_a_template_that_drops_earlier_reasoning_gives_a_row_per_step(tmp_path: Path) -> None:
    _, rows = cut(tmp_path, [reasoned()], DROPS_THOUGHT)
    assert rows["step_no"].to_list() == [0, 1, 2]
    assert rows["sample_id"].n_unique() == 3
    last = [json.loads(text)[-1]["content"] for text in rows["messages_json"]]
    assert last == ["one", "two", "three"]
    assert [sum(flags) for flags in rows["train"]] == [1, 1, 1]
    pairs = pl.read_parquet(tmp_path / "set/trl-prompt-completion/train.parquet")
    assert len(pairs) == 3


def test_one_user_message_keeps_its_row_under_the_same_template(tmp_path: Path) -> None:
    # The name of the template says nothing; the row does.
    run = Run("one question").say("user", "go")
    wire = {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [
        {"id": "c3_0", "type": "function", "function": {"name": "run", "arguments": "{}"}}]}  # fmt: skip
    run.result(run.reply("a", [("run", "{}")], raw=json.dumps(wire)), "o")
    run.reply("b")
    _, rows = cut(tmp_path, [run.end()], DROPS_THOUGHT)
    assert rows["step_no"].to_list() == [None]


@pytest.mark.parametrize(("template", "says"), [(FIRST_CALL_ONLY, "parallel call"), (REFUSES_PARALLEL, "one call")])
def test_a_template_that_loses_or_refuses_parallel_calls_is_refused_by_name(
    tmp_path: Path, template: str, says: str
) -> None:
    # CASES.md E10, the template's side.
    run = Run("parallel").say("user", "go")
    seq = run.reply("both", [("run", "{}"), ("run", '{"b":1}')])
    run.result(seq, "1", 0).result(seq, "2", 1)
    run.reply("done")
    done, rows = cut(tmp_path, [run.end()], template)
    assert rows.height == 0
    ledger = done.funnel.ledger()
    assert ledger["reason"].to_list() == ["template_refuses"]
    assert says in ledger["detail"][0]


def test_a_template_under_which_no_step_is_exact_is_refused(tmp_path: Path) -> None:
    done, rows = cut(tmp_path, [Run("plain").simple()], NEVER_A_PREFIX)
    assert rows.height == 0
    assert done.funnel.ledger()["reason"].to_list() == ["template_refuses"]


def test_a_chosen_reply_that_is_a_call_stands_in_the_render(tmp_path: Path) -> None:
    # CASES.md E11: a strategy that drops calls leaves nothing of the reply; here it is refused, not written.
    run = Run("call").say("user", "go")
    run.reply(None, [("run", '{"x":1}')])
    dropping = PLAIN.replace("m.tool_calls or []", "[]").replace("{{ m.content }}", "{{ m.content or '' }}")
    done, _ = cut(tmp_path / "dropped", [run.end()], dropping)
    assert "its call is not rendered" in done.funnel.ledger()["detail"][0]


def test_arguments_are_given_as_the_template_reads_them() -> None:
    from trajlake.pipelines.curate.sample import Sample

    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": null}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}"
    )
    texts = [json.dumps(one).encode() for one in ({"role": "user", "content": "x"}, message)]
    sample = Sample(texts=texts, train=[False, True], tools_json=None, facts={})
    assert Template(text, "object").check(sample).kept
    assert (
        "AttributeError" in Template(text, "text").check(sample).refused or Template(text, "text").check(sample).refused
    )
    with pytest.raises(UserError, match="line 1"):
        Template("{% if %}")
