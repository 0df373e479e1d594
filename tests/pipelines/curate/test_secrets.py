"""Secrets: found however they are written, once per payload and scanner version, and in no training row."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy
from trajlake.pipelines.curate.cut import CutOptions, cut_sft
from trajlake.pipelines.curate.scan import known_findings, scan
from trajlake.pipelines.curate.secret_rules import find, redacted, suspicious
from trajlake.pipelines.lakehouse.lake import Lake

KEY = "AKIA" + "IOSFODNN7EXAMPLE"
PEM = "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIEowIBAAKCAQEAx0q\n-----END RSA PRIVATE" + " KEY-----"
WRAPPED = base64.b64encode(b"x" * 50 + b" " + KEY.encode() + b" " + b"y" * 60).decode()
FORMS = {
    "plain": f"export AWS_ACCESS_KEY_ID={KEY}",
    "base64": "Basic " + base64.b64encode(f"user:{KEY}:x".encode()).decode(),
    "base64, other alignment": base64.b64encode(f"u:{KEY}:xy".encode()).decode(),
    "base64, wrapped": "\n".join(WRAPPED[at : at + 76] for at in range(0, len(WRAPPED), 76)),
    "JSON-escaped": json.dumps({"body": json.dumps({"key": KEY})}),
    "escaped letters": '{"key": "' + "".join(f"\\u{ord(char):04x}" for char in KEY) + '"}',
    "PEM": PEM,
    "PEM in JSON": json.dumps({"file": PEM}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_however_it_is_written(form: str) -> None:
    assert suspicious(FORMS[form])
    assert {one.kind for one in find(FORMS[form])} <= {"aws_key", "private_key"}
    assert find(FORMS[form])


@pytest.mark.parametrize(
    "text",
    [
        "commit 4f1c2d3e4f1c2d3e4f1c2d3e4f1c2d3e4f1c2d3e and sha256 " + "ab" * 32,
        "the password is not here, and token counts are 12345",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "AKIA is how they begin; sk-learn and task-1 are no keys",
        base64.b64encode(bytes(range(256))).decode(),
        "password: your-password-here-123",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize("form", [form for form in FORMS if form != "escaped letters"])
def test_redaction_leaves_nothing_to_find(form: str) -> None:
    clean, kinds = redacted(FORMS[form])
    assert kinds or form == "base64, wrapped"
    assert not find(clean) or form == "base64, wrapped"
    assert "text around" in redacted(f"text around {FORMS['plain']}")[0]


def planted() -> list[Run]:
    runs = []
    for form, text in FORMS.items():
        run = Run(form).say("user", f"look at {form}")
        run.result(run.reply(f"reading {form}", [("run", "{}")]), text)
        run.reply(f"saw {form}")
        runs.append(run.end())
    spoken = Run("spoken").say("user", "what is it")
    spoken.reply(f"it is {KEY}")
    big = Run("in a blob").say("user", "read the file")
    big.result(big.reply("reading", [("run", '{"f":1}')]), "x" * 40_000 + f"\n{KEY}\n" + "y" * 100)
    big.reply("read it")
    return [*runs, spoken.end(), big.end(), Run("clean").simple()]


def test_every_planted_secret_is_found_once_and_nothing_of_it_is_exported(tmp_path: Path) -> None:
    # CASES.md E17 and E18: plain, base64, JSON-escaped and PEM, in payloads and in blobs.
    url = lake_of(tmp_path, planted())
    lake = Lake.open(url)
    report = scan(lake, lake.newest())
    found = known_findings(lake)
    assert set(FORMS) | {"spoken"} == set(found["trajectory_id"].drop_nulls())
    assert found["sha256"].drop_nulls().len() >= 1
    assert report.found == len(found)
    text = json.dumps(pl.concat([pl.read_parquet(path) for path in lake.ledger_files("secrets")]).rows(), default=str)
    assert KEY not in text
    from trajlake.pipelines.connect import connect
    from trajlake.pipelines.reports import reports

    by_kind = connect(url).execute(reports()["secrets_by_kind"].sql).fetchall()
    assert sum(row[3] for row in by_kind) == len(found)
    again = scan(lake, lake.newest())
    assert (again.payloads, again.blobs, again.found) == (0, 0, 0)

    cut = cut_sft(url, policy(), str(tmp_path / "set"), CutOptions(families=("openai", "axolotl", "trl-text")))
    gone = dict(cut.funnel.ledger().filter(pl.col("reason") == "secret").select("trajectory_id", "reason").iter_rows())
    assert set(gone) == set(FORMS) | {"spoken", "in a blob"}
    exported = b"".join(path.read_bytes() for path in (tmp_path / "set").rglob("*.jsonl"))
    assert KEY.encode() not in exported
    assert pl.read_parquet(tmp_path / "set/rows/train.parquet")["trajectory_id"].to_list() == ["clean"]


def test_redaction_is_opt_in_recorded_per_row_and_never_touches_what_a_model_wrote(tmp_path: Path) -> None:
    url = lake_of(tmp_path, planted())
    cut_sft(url, policy(secrets={"action": "redact"}), str(tmp_path / "set"), CutOptions())
    rows = pl.read_parquet(tmp_path / "set/rows/train.parquet")
    assert "spoken" not in rows["trajectory_id"].to_list()
    assert "plain" in rows["trajectory_id"].to_list()
    for row in rows.filter(pl.col("trajectory_id") != "clean").iter_rows(named=True):
        assert json.loads(row["redactions"])["counts"]
        assert not find(row["messages_json"])
        assert "[REDACTED:" in row["messages_json"]
    clean = rows.filter(pl.col("trajectory_id") == "clean").row(0, named=True)
    assert clean["redactions"] is None


def test_a_secret_that_persists_in_a_compaction_summary_is_found_in_both(tmp_path: Path) -> None:
    # CASES.md E18: `cat .env`, then compaction repeats it.
    run = Run("compacted").say("user", "go")
    run.result(run.reply("reading", [("run", '{"c":"cat .env"}')]), f"AWS={KEY}")
    summary = run.reply(f"The key is {KEY}", purpose="compact", items=run.items)
    run.compacted(summary)
    run.say("user", "go on")
    run.reply("done")
    url = lake_of(tmp_path, [run.end()])
    cut = cut_sft(url, policy(), str(tmp_path / "set"), CutOptions())
    assert cut.rows == 0
    assert cut.funnel.ledger()["reason"].to_list() == ["secret", "secret"]


def test_a_branch_does_not_bring_its_parent_s_secret(tmp_path: Path) -> None:
    from tests.pipelines.curate.test_segments import branch_of

    parent = Run("parent").say("user", "go")
    parent.result(parent.reply("reading", [("run", "{}")]), f"AWS={KEY}")
    branch = branch_of(parent, 1, parent.number - 1)
    branch.reply("from the branch")
    url = lake_of(tmp_path, [parent.end(), branch.end()])
    cut = cut_sft(url, policy(), None, CutOptions(dry_run=True))
    # The parent's own row ends with its reply, before the output that holds the secret.
    assert cut.funnel.ledger()["trajectory_id"].to_list() == ["branch"]


def test_a_grown_trajectory_is_scanned_from_where_the_last_scan_ended(tmp_path: Path) -> None:
    run = Run("grows").say("user", "go")
    run.reply("one")
    url = lake_of(tmp_path, [run])
    lake = Lake.open(url)
    first = scan(lake, lake.newest())
    seen = run.number
    run.say("user", f"my key is {KEY}")
    run.reply("two")
    grown = Run("grows")
    grown.story.landed = run.story.landed[seen:]
    lake_of(tmp_path, [grown], night=1)
    second = scan(lake, lake.newest())
    assert first.payloads == seen
    assert second.payloads == run.number - seen
    assert second.found == 1
