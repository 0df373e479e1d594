"""`trajlake verify --journal`: the rules of the chain over a root, the same as over the lake made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.pipelines.test_audit_command import clean
from tests.sql.audit_story import Story
from trajlake.pipelines.audit.audit_session import AnchorFile
from trajlake.pipelines.audit.verify_root import verify_root
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas import blobs
from trajlake.schemas.events import VarSet


def write(folder: Path, *stories: Story) -> Root:
    """Write stories into a root through the real writer."""
    root = Root.open(str(folder))
    writer = root.claim_writer()
    for story in stories:
        info = TrajectoryInfo(
            tenant=story.tenant, trajectory_id=story.trajectory_id, model="m", model_version="", started_on="2026-11-30"
        )
        for event in (*story.events, *story.astray):
            writer.append([event], info)
    writer.close()
    return root


def found(root: Root, **options: object) -> dict[str, list[tuple[str, int]]]:
    results = verify_root(root, **options)  # type: ignore[arg-type]
    return {r.rule: [(v.trajectory_id, v.sequence_number) for v in r.violations] for r in results if r.found}


def test_a_root_as_written_passes(tmp_path: Path, trajlake: Command) -> None:
    write(tmp_path / "root", clean("one"), clean("two"))
    done = trajlake("verify", "--journal", "root", "--blobs")
    assert done.returncode == 0, done.stderr
    assert "chain            pass" in done.stdout
    assert "truncated        not applicable" in done.stdout


def test_an_event_that_was_altered_breaks_the_chain_and_one_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    story, other = clean("one"), clean("two")
    forged = story.event(VarSet(name="forged"), 2, 1, b"x" * 32, 5)
    story.events[2] = forged
    del other.events[2]
    root = write(tmp_path / "root", story, other)
    assert found(root) == {"chain": [("one", 2), ("one", 3)], "gap": [("two", 3)]}


def test_a_tenant_is_checked_alone(tmp_path: Path) -> None:
    story, other = clean("one"), clean("two", "globex")
    del story.events[2]
    root = write(tmp_path / "root", story, other)
    assert found(root, tenant="globex") == {}
    assert found(root, tenant="acme") == {"gap": [("one", 3)]}


def test_a_root_that_was_cut_shows_against_an_anchor(tmp_path: Path) -> None:
    story = clean("one")
    root = write(tmp_path / "root", story)
    number = story.next - 1
    heads = [["one", number, story.events[number].hash.hex(), "2026-11-30"], ["gone", 3, "00", "2026-11-30"]]
    whole = AnchorFile("acme", "a", json.dumps({"heads": heads}))
    results = {result.rule: result for result in verify_root(root, anchors=[whole])}
    assert results["truncated"].verdict == "pass"
    assert "1 anchored trajectories are not in this root" in results["truncated"].note
    cut = AnchorFile("acme", "a", json.dumps({"heads": [["one", number + 1, "00" * 32, "2026-11-30"]]}))
    assert found(root, anchors=[cut]) == {"truncated": [("one", number + 1)]}


def test_a_blob_that_is_gone_or_changed_is_found(tmp_path: Path) -> None:
    story = Story("one")
    payload, (big,) = blobs.offload_payload(VarSet(name="v", value="x" * 100_000))
    story.add(payload)
    root = write(tmp_path / "root", story)
    assert found(root, blobs=True) == {"blobs": [("one", 1)]}
    root.blobs.put("acme", big.data)
    assert found(root, blobs=True) == {}
    path = Path(root.blob_path("acme", big.sha256))
    path.chmod(0o600)
    path.write_bytes(b"other")
    assert found(root, blobs=True) == {"blobs": [("one", 1)]}


@pytest.mark.parametrize("options", [("--journal", "nowhere"), ("--journal", "root", "--lake", "lake")])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, trajlake: Command, options: tuple[str, ...]) -> None:
    write(tmp_path / "root", clean("one"))
    assert trajlake("verify", *options).returncode == 2
