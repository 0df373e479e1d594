"""`trajlake audit` over real lakes: verdicts, exit codes, the bundle, the record, and text that means harm."""

from __future__ import annotations

import csv
import datetime as dt
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import Command
from tests.pipelines.audit_lakes import make_lake
from tests.sql.audit_fixture_stories import told
from tests.sql.audit_story import Story
from trajlake.pipelines.audit.audit import Request, run_audit
from trajlake.pipelines.audit.audit_session import Scope, Session
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.runtime.cli import main
from trajlake.schemas.events import MessageAdded, TaskEnded
from trajlake.schemas.tables import TABLES

HOSTILE = "=cmd|'x'!A1'; drop table events;--\"<script>alert(1)</script>&\u202eevil é"


def clean(name: str, tenant: str = "acme", day: str | None = None) -> Story:
    story = Story(name, tenant=tenant)
    story.done()
    story.add(TaskEnded(status="completed"))
    if day is not None:
        story.started_on = type(story.started_on).fromisoformat(day)
    return story


def breaking(name: str, tenant: str = "acme", **more: Any) -> Story:
    """A trajectory that breaks Q01 at event 1."""
    story = Story(name, tenant=tenant)
    story.intend("1.0", **more)
    story.result("1.0")
    return story


@pytest.fixture(scope="module")
def stories_lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The fixture's stories as a real lake: written, landed, compacted."""
    return make_lake(tmp_path_factory.mktemp("stories"), told().stories.values())


def test_a_clean_lake_exits_0_and_says_who_vouches(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [clean("one")])
    done = trajlake("audit", "--lake", "lake")
    assert done.returncode == 0, done.stderr
    assert "positive control: fired" in done.stdout
    assert "self-attested" in done.stdout
    assert "Q01   pass" in done.stdout
    assert "Q13   not applicable" in done.stdout


def test_an_unknown_tenant_is_refused_and_an_empty_range_is_said(stories_lake: str, trajlake: Command) -> None:
    done = trajlake("audit", "--lake", stories_lake, "--tenant", "nosuch", "--no-ledger")
    assert done.returncode == 2
    assert "no tenant 'nosuch' in this lake; there are: 'acme'" in done.stderr
    done = trajlake("audit", "--lake", stories_lake, "--from", "2031-01-01", "--no-ledger")
    assert (done.returncode, "nothing in scope" in done.stdout) == (0, True)
    assert "nothing in scope" not in trajlake("audit", "--lake", stories_lake, "--no-ledger").stdout


def test_real_rows_give_the_findings_of_the_fixture_that_no_tampering_made(stories_lake: str) -> None:
    report = run_audit(Request(lake=stories_lake, record=False))
    found = {(one.control, one.trajectory_id) for one in report.findings}
    tampered = {"Q13", "Q14", "Q15", "Q16a", "Q16b", "Q17", "Q20", "Q24", "X05"}
    expected = {
        (row["control"], row["trajectory_id"])
        for row in told().expected
        if row["control"] not in tampered and row["label"] != "item gone"
    }
    assert found == expected


def test_findings_exit_1_and_name_the_exact_event(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [breaking("one"), clean("two")])
    done = trajlake("audit", "--lake", "lake", "--control", "Q01", "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["tenant"], finding["trajectory_id"], finding["sequence_number"], finding["action_id"]) == (
        "acme", "one", 1, "1.0",
    )  # fmt: skip


def test_a_lake_that_is_not_there_exits_2_and_a_silent_positive_control_3(
    tmp_path: Path, trajlake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trajlake("audit", "--lake", "nowhere").returncode == 2
    from trajlake.pipelines.audit import audit

    lake = make_lake(tmp_path, [clean("one")])
    (control,) = audit.chosen(["Q01"])
    broken = control._replace(sql=control.sql.replace("'allow'", "'other'"))
    monkeypatch.setattr(audit, "chosen", lambda _: [broken])
    with pytest.raises(audit.AuditImpossible, match="the positive control did not fire") as refused:
        run_audit(Request(lake=lake))
    assert refused.value.exit_code == 3


def test_tenant_and_days_choose_what_is_audited_and_which_files_are_opened(tmp_path: Path) -> None:
    late = breaking("late")
    late.started_on = late.started_on.replace(day=29)
    lake = make_lake(tmp_path, [breaking("a"), breaking("b", "globex"), late])
    report = run_audit(
        Request(lake=lake, controls=("Q01",), tenant="acme", first=late.started_on, last=late.started_on, record=False)
    )
    assert [one.trajectory_id for one in report.findings] == ["late"]
    opened = {entry.table: (entry.read, entry.total) for entry in report.files}
    assert opened["events"] == (1, 3)
    assert opened["trajectories"] == (1, 3)


def test_a_run_is_recorded_with_its_findings_and_the_next_one_checks_that(tmp_path: Path, trajlake: Command) -> None:
    lake = make_lake(tmp_path, [breaking("one")])
    trajlake("audit", "--lake", "lake", "--actor", "u-7", "--control", "q01")
    rows = pl.read_parquet(Lake.open(lake).ledger_files("audit_findings"), hive_partitioning=False)
    assert sorted(rows["control"]) == ["Q01", "access"]
    access = rows.row(by_predicate=pl.col("control") == "access", named=True)
    assert json.loads(access["detail"])["actor"] == "u-7"
    found = rows.row(by_predicate=pl.col("control") == "Q01", named=True)
    assert (found["trajectory_id"], found["sequence_number"], found["action_id"]) == ("one", 1, "1.0")
    assert "X05   pass" in trajlake("audit", "--lake", "lake", "--control", "X05").stdout


def test_no_ledger_leaves_the_lake_as_it_is(tmp_path: Path, trajlake: Command) -> None:
    lake = make_lake(tmp_path, [clean("one")])
    trajlake("audit", "--lake", "lake", "--no-ledger")
    assert Lake.open(lake).ledger_files("audit_findings") == []


def test_an_import_is_not_applicable_neither_pass_nor_finding(tmp_path: Path) -> None:
    story = Story("session", origin="imported")
    story.result("1.0")
    report = run_audit(Request(lake=make_lake(tmp_path, [story]), record=False))
    verdicts = {result.control.id: result.verdict for result in report.results}
    assert verdicts["Q03"] == verdicts["Q22"] == verdicts["X01"] == "not applicable"
    assert verdicts["Q15"] == verdicts["Q16a"] == "pass"
    beside = run_audit(Request(lake=make_lake(tmp_path / "more", [story, clean("one")]), record=False))
    (q03,) = [result for result in beside.results if result.control.id == "Q03"]
    assert (q03.verdict, q03.trajectories, q03.not_judged) == ("pass", 1, {"imported": 1})


def test_a_bundle_holds_findings_sql_and_a_manifest_that_fits_every_file(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [breaking("one")])
    assert trajlake("audit", "--lake", "lake", "--out", "bundle").returncode == 1
    bundle = tmp_path / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()} - {"manifest.json"}
    assert names == set(manifest["files"])
    for name, told_of in manifest["files"].items():
        assert sha256((bundle / name).read_bytes()).hexdigest() == told_of["sha256"]
    for control in manifest["controls"]:
        assert manifest["files"][control["sql"]]["sha256"] == control["sha256"]
    assert manifest["positive_control"]["fired"] is True
    assert manifest["attestation"]["self_attested"] is True
    assert manifest["rows_in_scope"]["events"] == 3
    frame = pl.read_parquet(bundle / "findings.parquet")
    with (bundle / "findings.csv").open(newline="") as file:
        assert [row["sequence_number"] for row in csv.DictReader(file)] == [str(n) for n in frame["sequence_number"]]
    assert trajlake("audit", "--lake", "lake", "--out", "bundle").returncode == 2


def test_no_text_of_the_log_becomes_sql_markup_or_a_formula(tmp_path: Path, trajlake: Command) -> None:
    story = breaking(HOSTILE, tool=HOSTILE, key="k'; drop table events; --\n")
    story.add(MessageAdded(role="user", wire={"content": HOSTILE}, item_hash="0" * 64))
    folder = tmp_path / "it's; a lake\"--"
    folder.mkdir()
    lake = make_lake(folder, [story, clean("one")])
    done = trajlake(
        "audit", "--lake", lake, "--control", "Q01", "--control", "Q16a", "--out", "bundle", "--actor", HOSTILE
    )
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout
    frame = pl.read_parquet(tmp_path / "bundle" / "findings.parquet")
    assert list(frame["trajectory_id"]) == [HOSTILE]
    with (tmp_path / "bundle" / "findings.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["trajectory_id"] == f"'{HOSTILE}"
    page = (tmp_path / "bundle" / "report.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_a_path_with_quotes_semicolons_and_line_breaks_is_read_as_a_path(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s;\n--"drop table x";'
    folder.mkdir()
    schema = polars_schema(TABLES["secrets"])
    pl.DataFrame({name: [None] for name in schema}, schema=schema).write_parquet(folder / "f.parquet")
    with Session(Scope(now=dt.datetime.now(dt.UTC), tenant="a'; drop table x; --")) as session:
        session.make_view(TABLES["secrets"], [str(folder / "f.parquet")], ())
        assert session.count("secrets") == 1


@pytest.mark.parametrize("tenant", ["a'; drop table events; --", "x y", "é"])
def test_a_tenant_that_is_none_is_refused(tmp_path: Path, trajlake: Command, tenant: str) -> None:
    make_lake(tmp_path, [clean("one")])
    assert trajlake("audit", "--lake", "lake", "--tenant", tenant).returncode == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--from", "yesterday"], "no day"),
        (["--as-of", "now"], "no time"),
        (["--control", "Q99"], "no control"),
        (["--anchor", "a.json"], "--public-key"),
        (["--snapshot", "77"], "no snapshot 77"),
        (["--sla-minutes", "99999999999999999999"], "--sla-minutes"),
        (["--retention", "policy.toml"], "policy.toml"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(tmp_path: Path, trajlake: Command, options: list[str], says: str) -> None:
    make_lake(tmp_path, [clean("one")])
    done = trajlake("audit", "--lake", "lake", *options)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_retention_policy_is_read_and_applied(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [clean("one")])
    (tmp_path / "policy.toml").write_text("[[keep]]\nwhat = 'payloads'\nmaximum_days = 30\n")
    soon = trajlake("audit", "--lake", "lake", "--control", "Q20", "--retention", "policy.toml")
    assert "Q20   pass" in soon.stdout, soon.stderr
    late = trajlake(
        "audit", "--lake", "lake", "--control", "Q20", "--retention", "policy.toml", "--as-of", "2027-06-01T00:00:00Z"
    )
    assert "kept_too_long" in late.stdout
    (tmp_path / "policy.toml").write_text("[[keep]]\nwhat = 'everything'\n")
    assert trajlake("audit", "--lake", "lake", "--retention", "policy.toml").returncode == 2


def test_real_imports_of_every_format_run_through_all_controls(
    tmp_path: Path, trajlake: Command, shared_data: Path
) -> None:
    left_out = ("LICENSES", "multi-agent")
    folders = [one for one in sorted(shared_data.iterdir()) if one.is_dir() and one.name not in left_out]
    size = lambda path: path.stat().st_size  # noqa: E731
    files = [min((one for one in folder.rglob("*") if one.is_file()), key=size) for folder in folders]
    done = trajlake("import", "auto", *map(str, files), "--lake", "lake", timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert trajlake("scan", "--lake", "lake", timeout_s=110).returncode in (0, 1)
    report = run_audit(Request(lake=str(tmp_path / "lake"), record=False))
    verdicts = {result.control.id: result.verdict for result in report.results}
    assert report.rows["trajectories"] >= 12
    assert report.rows["events"] > 100
    judged = {name for name, verdict in verdicts.items() if verdict == "pass"}
    assert judged == {"Q15", "Q16a"}, "what an import can show; authority and effects it cannot"
    assert set(verdicts.values()) == {"pass", "not applicable"}
    assert all(result.not_judged.get("imported") for result in report.results if result.control.applies == "live")


HARMFUL = ["a'; drop table events; --\n"]
HARMFUL += [pytest.param(one, marks=pytest.mark.long) for one in ('x"y', "$1", "../../etc", "")]  # type: ignore[list-item]


@pytest.mark.parametrize("text", HARMFUL)
def test_text_that_means_harm_in_any_option_is_one_line_and_changes_nothing(
    stories_lake: str, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    lake = stories_lake
    before = {str(path): path.read_bytes() for path in Path(lake).rglob("*") if path.is_file()}
    ask = (
        ("audit", "--tenant", text), ("audit", "--from", text), ("audit", "--to", text), ("audit", "--control", text),
        ("audit", "--as-of", text), ("audit", "--snapshot", text), ("audit", "--anchor", text, "--public-key", text),
        ("evidence", text), ("evidence", "one", "--tenant", text), ("evidence", "one", "--snapshot", text),
        ("verify", "--tenant", text), ("anchor", "prove", text, "--tenant", "acme"),
    )  # fmt: skip
    for verb, *options in ask:
        told = [verb, *options, *(["--no-ledger"] if verb in ("audit", "evidence") else []), "--lake", lake]
        code = main(told)
        said = capsys.readouterr()
        assert code == 2, (told, said.err)
        assert len(said.err.splitlines()) == 1, (told, said.err)
    after = {str(path): path.read_bytes() for path in Path(lake).rglob("*") if path.is_file()}
    assert after == before


def test_a_scan_of_the_snapshot_makes_the_controls_of_secrets_apply(tmp_path: Path, trajlake: Command) -> None:
    secret = "ghp_" + "a1B2" * 9
    story = Story("leaky")
    story.done()
    story.add(MessageAdded(role="user", wire={"content": f"token {secret}"}, item_hash="0" * 64))
    story.add(TaskEnded(status="completed"))
    make_lake(tmp_path, [story])
    before = trajlake("audit", "--lake", "lake", "--control", "Q13", "--control", "Q14")
    assert before.stdout.count("no 'trajlake scan' covers this snapshot") == 2, before.stdout
    assert trajlake("scan", "--lake", "lake").returncode == 1
    after = trajlake("audit", "--lake", "lake", "--control", "Q13", "--control", "Q14")
    assert (after.returncode, "Q13   pass" in after.stdout, "Q14   pass" in after.stdout) == (0, True, True)
