"""From a real writer's root through the shipper into a lake, and the loss reports of imports beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.pipelines.lakes import events_of, rows
from tests.pipelines.segments import Story
from trajlake.ingest.landing_store import open_landing
from trajlake.ingest.shipper import Shipper
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.runtime.root import Root


def test_what_a_writer_acknowledged_is_in_the_lake_after_ship_and_compact(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path / "journal"))
    stories = [Story(f"t{n}").start().say("x" * 500, 40).end() for n in range(5)]
    for half in (slice(0, 20), slice(20, None)):
        writer = root.claim_writer()
        for story in stories:
            ticket = writer.append([event for event, _ in story.landed[half]], story.info)
        ticket.wait(30)
        writer.close()
    Shipper(root, open_landing(str(tmp_path / "landing"), root.env)).run()
    report = compact(str(tmp_path / "landing"), str(tmp_path / "lake"))
    assert (report.segments_taken >= 2, report.duplicates, report.held_back) == (True, 0, 0)
    assert [key[1:3] for key in events_of(tmp_path / "lake")] == [(f"t{n}", k) for n in range(5) for k in range(42)]
    assert rows(tmp_path / "lake", "trajectories")["status"].to_list() == ["completed"] * 5


def put_report(landing: Path, digest: str, **changes: object) -> None:
    facts: dict[str, object] = {
        "tenant": "t", "sha256": digest, "mapping_version": 0, "format": "tau-bench", "name": "runs.json", "bytes": 9,
        "trajectories": {"a": 3, "b": 4}, "records": {"seen": 7, "mapped": 6, "kept_raw": 1, "skipped": 0},
        "by_kind": {},
    }  # fmt: skip
    path = landing / "imports" / digest / "0.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts | changes))


def test_loss_reports_fill_the_table_imports_and_their_sources_the_content_store(tmp_path: Path) -> None:
    landing, source = tmp_path / "landing", b"the source"
    digest = hashlib.sha256(source).hexdigest()
    blob = landing / "blobs" / "t" / digest[:2] / digest
    blob.parent.mkdir(parents=True)
    blob.write_bytes(source)
    put_report(landing, digest)
    (landing / "imports" / digest / "torn.json").write_text("{")
    assert compact(str(landing), str(tmp_path / "lake")).imports_added == 1
    (row,) = rows(tmp_path / "lake", "imports").to_dicts()
    assert (row["trajectories"], row["records_seen"], row["records_kept_raw"], row["name"]) == (2, 7, 1, "runs.json")
    (kept,) = rows(tmp_path / "lake", "blobs").to_dicts()
    assert ContentStore(str(tmp_path / "lake")).get("t", digest, kept["path"]) == source
    assert compact(str(landing), str(tmp_path / "lake")).outcome == "nothing_to_do"
    put_report(landing, digest, bytes=10)
    compact(str(landing), str(tmp_path / "lake"))
    assert rows(tmp_path / "lake", "imports")["bytes"].to_list() == [10]
    assert len(rows(tmp_path / "lake", "blobs")) == 1
