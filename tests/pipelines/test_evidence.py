"""`trajlake evidence`: everything a review needs of one trajectory, exact, escaped, recorded."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import Command
from tests.pipelines.audit_lakes import make_lake
from tests.pipelines.test_anchor import rewrite
from tests.pipelines.test_audit_command import HOSTILE, clean
from tests.sql.audit_fixture_stories import told
from tests.sql.audit_story import Story
from trajlake.pipelines.audit.evidence import gather
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.schemas.chain import commitment, event_hash, genesis
from trajlake.schemas.events import MessageAdded


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The stories of the audits' fixture as a real lake."""
    return Lake.open(make_lake(tmp_path_factory.mktemp("evidence"), told().stories.values()))


def test_events_come_in_order_with_all_that_their_hashes_are_made_of(lake: Lake) -> None:
    found = gather(lake, lake.newest(), "acme", "T06")
    before = genesis("acme", "T06")
    for number, event in enumerate(found["events"]):
        assert event["sequence_number"] == number
        bound = commitment(bytes.fromhex(event["salt"]), event["payload_text"].encode())
        before = event_hash(
            before, "acme", "T06", number, event["type"], event["schema_version"], event["fencing_token"],
            event["turn"], event["recorded_at_us"], bound,
        )  # fmt: skip
        assert event["hash"] == before.hex()
    assert found["proofs"]["head"] == before.hex()


def test_an_action_shows_who_decided_who_approved_and_what_was_dispatched(lake: Lake) -> None:
    found = gather(lake, lake.newest(), "acme", "T06")
    action = next(one for one in found["actions"] if one["approval_id"] == "p1")
    assert [step["type"] for step in action["steps"]] == [
        "ApprovalRequested", "ApprovalResolved", "Authorized", "ToolIntent", "ToolResult",
    ]  # fmt: skip
    assert action["steps"][0]["requester"] == "agent-7"
    assert action["steps"][1]["approver"] == "u-boss"


def test_doubts_say_how_they_were_settled_or_that_they_were_not(lake: Lake) -> None:
    told_of = [one["doubt"] for one in gather(lake, lake.newest(), "acme", "T04")["actions"] if one["doubt"]]
    assert sorted(told_of) == [
        "was in doubt, settled as executed by person at 12",
        "was in doubt, settled as executed by person at 9",
        "was in doubt, settled as not_executed by probe at 5",
    ]
    assert gather(lake, lake.newest(), "acme", "T01")["actions"][0]["doubt"] == ""


def test_each_reply_names_the_events_that_the_model_was_shown(lake: Lake) -> None:
    found = gather(lake, lake.newest(), "acme", "T01")
    assert [one["items"] for one in found["contexts"]] == [[[0, 1]], [[0, 1], [0, 3], [0, 6]]]


def test_events_that_do_not_count_are_listed_apart(lake: Lake) -> None:
    (row,) = gather(lake, lake.newest(), "acme", "T07")["not_counted"]
    assert (row["reason"], row["event_type"]) == ("superseded", "ToolIntent")


def test_the_command_writes_json_and_one_page_and_records_who_took_them(tmp_path: Path, trajlake: Command) -> None:
    path = make_lake(tmp_path, [clean("one")])
    done = trajlake("evidence", "one", "--lake", "lake", "--tenant", "acme", "--out", "out", "--actor", "u-9")
    assert done.returncode == 0, done.stderr
    assert "self-attested" in done.stdout
    data = (tmp_path / "out" / "evidence.json").read_bytes()
    page = (tmp_path / "out" / "evidence.html").read_text()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    again = trajlake("evidence", "one", "--lake", "lake", "--tenant", "acme", "--out", "out", "--actor", "u-10")
    assert (again.returncode, "not empty" in again.stderr) == (2, True)  # and no record says that it was taken out
    rows = pl.read_parquet(Lake.open(path).ledger_files("exports"), hive_partitioning=False).to_dicts()
    assert [(row["kind"], row["actor"], row["manifest_sha256"]) for row in rows] == [
        ("evidence", "u-9", sha256(data).hexdigest())
    ]


def test_a_broken_chain_exits_1_and_an_unknown_trajectory_2(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [clean("one")])
    assert trajlake("evidence", "other", "--lake", "lake", "--tenant", "acme").returncode == 2
    rewrite(tmp_path / "lake" / "events", pl.col("sequence_number") != 1)
    done = trajlake("evidence", "one", "--lake", "lake", "--tenant", "acme", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["proofs"]["chain"][0]["kind"] == "gap"


def test_hostile_text_stays_text(tmp_path: Path, trajlake: Command) -> None:
    story = Story(HOSTILE)
    story.show(story.add(MessageAdded(role=HOSTILE, wire={"content": HOSTILE}, item_hash="0" * 64)))
    story.think(model=HOSTILE)
    story.done(tool=HOSTILE)
    make_lake(tmp_path, [story])
    done = trajlake("evidence", HOSTILE, "--lake", "lake", "--tenant", "acme", "--out", "out")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "evidence.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\\u{202e}" in page


def test_an_anchored_head_comes_with_its_proof(tmp_path: Path, trajlake: Command) -> None:
    make_lake(tmp_path, [clean("one"), clean("two")])
    trajlake("anchor", "key", "k")
    trajlake("anchor", "make", "--lake", "lake", "--tenant", "acme", "--key", "k", "--to", "a.json")
    done = trajlake(
        "evidence", "one", "--lake", "lake", "--tenant", "acme", "--json", "--anchor", "a.json", "--public-key", "k.pub"
    )
    proofs = json.loads(done.stdout)["proofs"]
    assert proofs["self_attested"] is False
    assert [one["is_present"] for one in proofs["anchors"]] == [True, True]
    from trajlake.pipelines.audit.anchor_read import proof_faults

    anchor = json.loads((tmp_path / "a.json").read_text())
    assert proof_faults(proofs["anchors"][0]["inclusion_proof"], [anchor]) == []
