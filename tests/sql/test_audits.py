"""The controls: exactly what the two fixtures hold, near misses left alone, every statement with its header."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.sql import audit_fixture_stories
from tests.sql.audit_layout import SCOPE_ALL, SCOPE_NARROW, Place, found_by, laid_out, narrow, open_session
from tests.sql.audit_layout import _ledgers as add_ledgers
from tests.sql.audit_story import Story, minute, tables_of
from trajlake.pipelines.audit.audit_controls import chosen, controls, facts, lake_tables
from trajlake.pipelines.audit.audit_fixture import load_rows, positive_control, read_fixture, run_fixture, write_fixture
from trajlake.pipelines.audit.audit_run import findings, run_controls
from trajlake.pipelines.audit.audit_session import Session
from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.tables import TABLES

IDS = [
    *(f"Q{n:02d}" for n in range(1, 16)),
    "Q16a",
    "Q16b",
    *(f"Q{n}" for n in range(17, 25)),
    "X01",
    "X02",
    "X03",
    "X04",
    "X05",
]


def test_there_are_the_twenty_five_statements_and_the_five_beyond() -> None:
    assert list(controls()) == IDS


@pytest.mark.parametrize("control", controls().values(), ids=lambda control: control.id)
def test_a_header_says_what_a_control_proves_and_its_file_is_named_after_it(control) -> None:  # type: ignore[no-untyped-def]
    assert control.name.startswith(f"{control.id.lower()}_")
    assert control.severity in ("critical", "high", "medium")
    assert control.applies in ("live", "all")
    assert control.needs in ("", "scan", "anchor", "retention", "exports", "access")
    assert all(len(text) > 5 for text in (control.proves, control.clauses, control.grain))


@pytest.mark.parametrize("control", controls().values(), ids=lambda control: control.id)
def test_the_inputs_of_a_header_are_the_tables_and_facts_that_the_statement_reads(control) -> None:  # type: ignore[no-untyped-def]
    text = "\n".join(line for line in control.sql.splitlines() if not line.startswith("--"))
    known = {*TABLES, *facts(), "retention_policy", "compatible_versions", "anchor_files"}
    ours = set(re.findall(r"(\w+) as \(", text))
    named = set(re.findall(r"(?:from|join|semi join|anti join)\s+(\w+)", text)) & known - ours
    named |= {word for word in re.findall(r"from \w+ as \w+, (\w+)", text) if word in known}
    assert named == set(control.inputs)


@pytest.mark.parametrize("control", controls().values(), ids=lambda control: control.id)
def test_every_statement_asks_for_tenant_and_date(control) -> None:  # type: ignore[no-untyped-def]
    assert "in_scope(" in control.sql or "audit_from" in control.sql


def test_no_statement_looks_a_row_up_by_order_and_limit() -> None:
    for control in controls().values():
        assert not re.search(r"\blimit\s+\d", control.sql), control.id


def test_the_built_in_fixture_gives_its_findings_and_no_other() -> None:
    result = positive_control(list(controls().values()))
    assert (result.missing, result.unexpected) == ([], [])
    assert result.fired


def test_the_fixture_holds_eighteen_trajectories_and_the_thirty_one_findings_of_the_twenty_five_statements() -> None:
    fixture = read_fixture()
    assert len({row["trajectory_id"] for row in fixture.tables["trajectories"]}) == 18
    assert len([row for row in fixture.expected if row["control"].startswith("Q")]) == 31
    assert {row["control"] for row in fixture.expected} == set(IDS)


def test_the_clean_trajectory_appears_in_no_security_control() -> None:
    found = run_fixture(list(controls().values()), read_fixture())
    assert {one.control for one in found if one.trajectory_id == "T01"} == {"Q24"}


def test_the_fixture_is_what_its_writer_makes(tmp_path: Path, project: Path) -> None:
    write_fixture(str(tmp_path), *audit_fixture_stories.build())
    kept = project / "sql" / "fixtures"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in kept.iterdir())
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (kept / path.name).read_bytes(), path.name


def test_a_control_that_finds_nothing_any_more_makes_the_positive_control_silent() -> None:
    (control,) = chosen(["Q01"])
    silent = control._replace(sql=control.sql.replace("is distinct from 'allow'", "= 'never'"))
    result = positive_control([silent])
    assert not result.fired
    assert result.missing == ["Q01: T02 at 2"]


def test_a_control_that_finds_too_much_makes_the_positive_control_silent() -> None:
    (control,) = chosen(["Q01"])
    loud = control._replace(sql=control.sql.replace("    and intent.is_outside\n", ""))
    result = positive_control([loud])
    assert not result.fired
    assert result.unexpected


def differing(found: Counter[Place], wanted: Counter[Place]) -> list[tuple[str, Place]]:
    return [("missing", place) for place in wanted - found] + [("surplus", place) for place in found - wanted]


def test_the_second_fixture_gives_its_findings_and_no_near_miss_in_every_scope() -> None:
    selected = list(controls().values())
    laid = laid_out()
    with open_session(SCOPE_ALL, selected) as session:
        assert differing(found_by(session, selected), laid.everywhere) == []
        narrow(session, SCOPE_NARROW)
        assert differing(found_by(session, selected), laid.in_scope) == []
    with open_session(SCOPE_NARROW, selected) as session:
        assert differing(found_by(session, selected), laid.in_scope) == []


def test_a_data_set_without_a_list_holds_whatever_had_started_by_then() -> None:
    story = Story("erased")
    story.done()
    story.ledger.append(("erasures", {"erasure_id": "e", "epoch": 1, "state": "complete", "trajectory_id": "erased",
                                      "at": minute(60)}))  # fmt: skip
    builds = {"before": ("sft", 50, None), "after": ("rlvr", 70, {"note": "cut elsewhere"}),
              "earlier": ("sft", -3 * 24 * 60, None), "page": ("evidence", 70, None)}  # fmt: skip
    for name, (kind, at, detail) in builds.items():
        row = {"export_id": name, "kind": kind, "erasure_epoch": 0, "actor": "u", "at": minute(at), "detail": detail}
        story.ledger.append(("exports", row))
    tables = tables_of([story])
    add_ledgers(tables, [story])
    control = controls()["Q24"]
    with Session(SCOPE_ALL, memory_limit="1GiB") as session:
        load_rows(session, tables)
        session.build_facts([control])
        run_controls(session, [control], scanned=True)
        said = {one.object: one.detail for one in findings(session)}
    assert said == {
        "before": "must_recut: built before the erasure (its trajectories are not recorded)",
        "after": "violation: built after the erasure (its trajectories are not recorded)",
    }


def test_an_unknown_control_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no control 'q99'; there are Q01, Q02"):
        chosen(["q99"])


def test_one_control_reads_only_the_tables_it_needs() -> None:
    assert lake_tables(chosen(["Q15"])) == ["events", "trajectories", "quarantine", "erasures"]
