"""Anchors: signed, chained, proved, checked offline on a copy; what they find when a lake was changed behind them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import Command
from tests.pipelines.audit_lakes import make_lake
from tests.pipelines.segments import land
from tests.pipelines.test_audit_command import clean
from trajlake.pipelines.audit.anchor import deliver, lake_faults, make_anchor, record_anchor
from trajlake.pipelines.audit.anchor_read import (
    canonical,
    chain_faults,
    faults,
    make_key,
    outside_anchors,
    private_key,
    proof_faults,
    prove_consistency,
    prove_head,
    signed_bytes,
)
from trajlake.pipelines.audit.audit import Request, run_audit
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.canonical_json import canonical as rfc8785

Anchored = tuple[Path, dict[str, Any]]


def make_anchored(folder: Path) -> Anchored:
    """Make a lake of two trajectories, anchored once, with the anchor in a file outside."""
    lake = Lake.open(make_lake(folder, [clean("one"), clean("two"), clean("else", "globex")]))
    make_key(str(folder / "k"))
    document = make_anchor(lake, lake.newest(), "acme", private_key(str(folder / "k")))
    assert document is not None
    deliver(document, str(folder / "a1.json"))
    record_anchor(lake, document)
    return folder, json.loads((folder / "a1.json").read_text())


@pytest.fixture
def anchored(tmp_path: Path) -> Anchored:
    return make_anchored(tmp_path)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Anchored:
    """The same, for tests that change nothing."""
    return make_anchored(tmp_path_factory.mktemp("anchored"))


def test_an_anchor_names_the_heads_of_its_tenant_and_the_ledger_rows(untouched: Anchored) -> None:
    folder, document = untouched
    heads = pl.read_parquet(folder / "lake" / "trajectories" / "**" / "*.parquet")
    assert [head[0] for head in document["heads"]] == ["one", "two"]
    assert {head[2] for head in document["heads"]} < set(heads["head_hash"])
    assert {row[0] for row in document["ledgers"]} == {"runs"}
    assert faults(document) == []
    assert document["log_size"] == 0
    assert document["previous"] is None


def test_its_canonical_text_is_that_of_rfc_8785(untouched: Anchored) -> None:
    _, document = untouched
    for tree in (document, {"é\u007f\u2028": ['\n"\\', 3, None, {"b": 1, "a": "😀"}]}):
        assert canonical(tree) == rfc8785(tree)


@pytest.mark.parametrize(
    "name", ["tenant", "day", "snapshot", "heads", "ledgers", "root", "previous", "log_root", "made_at"]
)
def test_every_field_is_signed(untouched: Anchored, name: str) -> None:
    _, document = untouched
    forged = {**document, name: "other" if isinstance(document[name], str) else [] if document[name] else 1}
    assert faults(forged)


def test_a_key_that_was_not_pinned_is_found(untouched: Anchored, tmp_path: Path) -> None:
    _, document = untouched
    other = make_key(str(tmp_path / "other"))
    key = private_key(str(tmp_path / "other"))
    forged = {**document, "public_key": other}
    forged["signature"] = key.sign(signed_bytes(forged)).hex()
    assert faults(forged) == []
    assert faults(forged, document["public_key"]) == ["signed by another key than the one given"]


def second(folder: Path) -> dict[str, Any]:
    """Audit the lake, which writes to a ledger, and anchor that."""
    run_audit(Request(lake=str(folder / "lake"), controls=("Q15",)))
    lake = Lake.open(folder / "lake")
    document = make_anchor(lake, lake.newest(), "acme", private_key(str(folder / "k")))
    assert document is not None
    deliver(document, str(folder / "a2.json"))
    record_anchor(lake, document)
    return document


def test_the_next_anchor_names_only_what_is_new_and_the_one_before(anchored: Anchored, trajlake: Command) -> None:
    folder, first = anchored
    document = second(folder)
    assert document["heads"] == []
    assert {row[0] for row in document["ledgers"]} == {"audit_findings"}
    assert document["previous"]["anchor_id"] == first["anchor_id"]
    assert chain_faults([first, document]) == []
    again = trajlake("anchor", "make", "--lake", "lake", "--tenant", "acme", "--key", "k")
    assert again.stdout == ""
    assert "nothing new" in again.stderr


def test_an_anchor_that_was_swapped_breaks_the_chain_of_those_behind_it(anchored: Anchored) -> None:
    folder, first = anchored
    document = second(folder)
    key = private_key(str(folder / "k"))
    swapped = {**first, "made_at": "2026-01-01T00:00:00Z"}
    swapped["signature"] = key.sign(signed_bytes(swapped)).hex()
    assert faults(swapped) == []
    assert len(chain_faults([swapped, document])) == 2


def test_proofs_are_checked_without_a_lake(anchored: Anchored, trajlake: Command) -> None:
    folder, first = anchored
    document = second(folder)
    inclusion = prove_head(first, "two")
    consistency = prove_consistency([first, document], first, document)
    assert proof_faults(inclusion, [first]) == []
    assert proof_faults(consistency, [first, document]) == []
    assert proof_faults({**inclusion, "leaf": ["head", "acme", "two", 99, "00", "2026-11-30"]}, [first])
    assert proof_faults({**inclusion, "anchor_id": "other"}, [first])
    (folder / "p.json").write_bytes(canonical(inclusion))
    done = trajlake("anchor", "verify", "p.json", "a2.json", "a1.json", "--public-key", "k.pub")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_copy_is_compared_offline_with_heads_and_ledger_rows(anchored: Anchored, trajlake: Command) -> None:
    folder, _ = anchored
    second(folder)
    shutil.copytree(folder / "lake", folder / "copy")
    verify = ("anchor", "verify", "a1.json", "a2.json", "--public-key", "k.pub", "--lake", "copy")
    assert trajlake(*verify).returncode == 0
    rewrite(folder / "copy" / "events", pl.col("trajectory_id") != "one")
    done = trajlake(*verify)
    assert done.returncode == 1
    assert "acme 'one' at 4: anchored as the end" in done.stdout


def rewrite(table: Path, keep: pl.Expr) -> None:
    """Take rows out of a table's files as somebody with the lake's files can."""
    for path in table.rglob("*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False)
        frame.filter(keep).write_parquet(path)


def test_a_ledger_row_that_was_changed_or_dropped_is_found(anchored: Anchored) -> None:
    folder, document = anchored
    lake = Lake.open(folder / "lake")
    assert lake_faults(lake, [document]) == []
    for path in (folder / "lake" / "runs").glob("*.parquet"):
        pl.read_parquet(path).with_columns(pl.lit(7, pl.Int64).alias("events_added")).write_parquet(path)
    assert "was changed" in lake_faults(lake, [document])[0]
    rewrite(folder / "lake" / "runs", pl.lit(False))
    assert "is gone" in lake_faults(lake, [document])[0]


def test_a_cut_trajectory_shows_against_the_lakes_own_anchor_too_but_that_is_self_attested(
    anchored: Anchored, trajlake: Command
) -> None:
    folder, _ = anchored
    verified = trajlake("verify", "--lake", "lake")
    assert "truncated        pass  self-attested" in verified.stdout
    rewrite(folder / "lake" / "events", (pl.col("trajectory_id") != "one") | (pl.col("sequence_number") < 3))
    done = trajlake("verify", "--lake", "lake", "--anchor", "a1.json", "--public-key", "k.pub")
    assert done.returncode == 1
    assert "truncated        1 findings" in done.stdout
    audited = trajlake("audit", "--lake", "lake", "--control", "Q16b", "--anchor", "a1.json", "--public-key", "k.pub")
    assert audited.returncode == 1
    assert "self-attested" not in audited.stdout


def test_a_later_head_is_anchored_again_and_the_earlier_one_still_holds(anchored: Anchored, trajlake: Command) -> None:
    folder, first = anchored
    story = clean("one")
    story.events = story.events[:]
    from trajlake.pipelines.compaction.compact import compact
    from trajlake.runtime.wal.frame import TrajectoryInfo
    from trajlake.schemas.events import LeaseReleased

    number = story.add(LeaseReleased(token=1))
    info = TrajectoryInfo(tenant="acme", trajectory_id="one", model="m1", model_version="", started_on="2026-11-30")
    from tests.pipelines.segments import Landed

    land(folder / "landing", b"w" * 16, 0, [Landed(story.events[number], info)])
    compact(str(folder / "landing"), str(folder / "lake"))
    lake = Lake.open(folder / "lake")
    document = make_anchor(lake, lake.newest(), "acme", private_key(str(folder / "k")))
    assert document is not None
    assert [(head[0], head[1]) for head in document["heads"]] == [("one", number)]
    assert [head[1] for head in first["heads"] if head[0] == "one"] == [number - 1]
    assert trajlake("verify", "--lake", "lake", "--anchor", "a1.json", "--public-key", "k.pub").returncode == 0


def test_files_are_never_written_over_and_keys_are_private(anchored: Anchored, trajlake: Command) -> None:
    folder, _ = anchored
    with pytest.raises(UserError, match="never written over"):
        make_key(str(folder / "k"))
    assert (folder / "k").stat().st_mode & 0o777 == 0o600
    run_audit(Request(lake=str(folder / "lake"), controls=("Q15",)))
    refused = trajlake("anchor", "make", "--lake", "lake", "--tenant", "acme", "--key", "k", "--to", "a1.json")
    assert refused.returncode == 2
    assert "never written over" in refused.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"heads": []}', "not json", '{"format": "trajlake inclusion proof 1"}']
)
def test_a_file_that_is_no_anchor_is_said_to_be_none(untouched: Anchored, trajlake: Command, text: str) -> None:
    folder, _ = untouched
    (trajlake.folder / "x.json").write_text(text)
    done = trajlake("anchor", "verify", "x.json")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    with pytest.raises(UserError):
        outside_anchors([str(trajlake.folder / "x.json")], str(folder / "k.pub"))
