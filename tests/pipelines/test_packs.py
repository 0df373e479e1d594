"""Sources stand together in packs: less on disk, each readable by itself, and none outlives its erasure."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from tests.pipelines.forgetting import A, bytes_anywhere, person
from tests.pipelines.lakes import everything, rows
from tests.pipelines.segments import land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.content_objects import objects, read_object, verify_objects
from trajlake.pipelines.lakehouse.content_store import ContentStore, StoredBlob, object_of
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged, LakeError, LakeMissing
from trajlake.pipelines.lakehouse.packs import PACK_BYTES, Packer, blobs_in, each_once, moved
from trajlake.pipelines.lakehouse.pins import Pin, files_to_pin, put_pin, read_pin
from trajlake.pipelines.upkeep.erase import Wanted, erase
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.schemas.tables import SNAPSHOT_TABLES

RUN = "3-0123456789abcdef"
LATER = "4-0123456789abcdef"


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(lake: Path, *contents: bytes, run: str = RUN, tenant: str = "t") -> list[StoredBlob]:
    packer = Packer(str(lake), run)
    for data in contents:
        packer.put(tenant, digest_of(data), data)
    return packer.close()


def lines(seed: int, size: int = 30_000) -> bytes:
    """Text that compresses a little by itself, and to nothing beside a copy."""
    return random.Random(seed).randbytes(size // 2).hex().encode()


def source(landing: Path, data: bytes, trajectory_id: str, name: str = "session.jsonl") -> None:
    """Land a source and the report of an import that made one trajectory of it."""
    digest = digest_of(data)
    blob = landing / "blobs" / "t" / digest[:2] / digest
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    report = {"tenant": "t", "sha256": digest, "mapping_version": 0, "format": "pi", "name": name,
              "bytes": len(data), "trajectories": {trajectory_id: 4}}  # fmt: skip
    path = landing / "imports" / digest / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(report))


def two_people(home: Path) -> list[bytes]:
    """A lake with a trajectory of ada's and one of bob's, their sources in one pack; returns the sources."""
    first = 0
    for name in ("ada", "bob"):
        story = person(home / "landing", name, name)
        land(home / "landing", A, first, story.landed)
        first += len(story.landed)
    sources = [f"all that {name} said ".encode() * 500 for name in ("ada", "bob")]
    for data, name in zip(sources, ("ada", "bob"), strict=True):
        source(home / "landing", data, name)
    compact(str(home / "landing"), str(home / "lake"))
    assert len({object_of(one.path) for one in objects(str(home / "lake"))}) == 1
    return sources


def erase_ada(home: Path) -> None:
    places = Places(landings=(str(home / "landing"),), gone=frozenset({"all"}))
    report = erase(str(home / "lake"), Wanted(tenant="t", trajectory_id="ada"), places)
    assert (report.state, report.left) == ("complete", [])


def test_every_blob_of_a_pack_comes_back_and_like_ones_cost_little(tmp_path: Path) -> None:
    contents = [lines(1), lines(1) + b"more", lines(1)[100:], b"", b"x", lines(2)]
    blobs = packed(tmp_path, *contents)
    store = ContentStore(str(tmp_path))
    assert [store.get("t", one.sha256, one.path) for one in blobs] == contents
    assert [data for _, data in store.get_all(blobs)] == contents
    (name,) = {object_of(one.path) for one in blobs}
    size = (tmp_path / name).stat().st_size
    assert (
        sum(one.stored_bytes for one in blobs)
        == size
        < 1.3 * sum(one.stored_bytes for one in packed(tmp_path, lines(1), lines(2)))
    )
    assert blobs_in(str(tmp_path / name)) == {one.sha256 for one in blobs}
    assert oct((tmp_path / name).stat().st_mode)[-3:] == "600"


def test_a_pack_of_the_first_version_is_read(tmp_path: Path) -> None:
    first, second = b"the first source", b"the second source"
    index = json.dumps([[digest_of(data), len(data)] for data in (first, second)], separators=(",", ":")).encode()
    plain = b"(\xb5/\xfd\x00h\t\x01\x00" + first + second
    name = "cas/t/packs/86/b969b11a14e4ebb8fbb51d264879d3379ab3827841b49448bafecacf3e5200.1-0123456789abcdef"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"P*M\x18\x91\x00\x00\x00" + index + plain)
    store = ContentStore(str(tmp_path))
    assert store.get("t", digest_of(first), f"{name}#0+16") == first
    assert store.get("t", digest_of(second), f"{name}#16+17") == second
    assert blobs_in(str(tmp_path / name)) == {digest_of(first), digest_of(second)}
    assert packed(tmp_path, first, second, run=name.rpartition(".")[2])[1].path == f"{name}#16+17"


def test_packs_are_of_one_tenant_and_hold_so_much_larger_blobs_stand_alone(tmp_path: Path) -> None:
    packer = Packer(str(tmp_path), RUN)
    half = [bytes([n]) * (PACK_BYTES // 2) for n in range(3)]
    for tenant in ("a", ".."):
        for data in (*half, half[0], b"z" * PACK_BYTES):
            packer.put(tenant, digest_of(data), data)
    blobs = packer.close()
    assert len(blobs) == 8
    assert len({object_of(one.path) for one in blobs}) == 6
    assert all(one.path.startswith({"a": "cas/a/", "..": "cas/%2E%2E/"}[one.tenant]) for one in blobs)
    assert sum("#" in one.path for one in blobs) == 6
    with pytest.raises(BlobDamaged):
        packer.put("a", "0" * 64, b"other")


def test_any_damage_of_a_pack_is_found_on_read(tmp_path: Path) -> None:
    blobs = packed(tmp_path, lines(1), lines(2))
    path = tmp_path / object_of(blobs[0].path)
    whole = path.read_bytes()
    middle = len(whole) - 20
    for damaged in (b"", b"junk", whole[:-9], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        path.write_bytes(damaged)
        found = [data for _, data in ContentStore(str(tmp_path)).get_all(blobs)]
        assert any(isinstance(data, BlobDamaged) for data in found)
        assert all(isinstance(data, LakeError) or digest_of(data) in {b.sha256 for b in blobs} for data in found)
    path.unlink()
    with pytest.raises(LakeMissing, match=blobs[1].sha256):
        ContentStore(str(tmp_path)).get("t", blobs[1].sha256, blobs[1].path)


def test_what_two_processes_packed_is_named_once_and_no_pack_hides_a_blob_that_no_row_names(tmp_path: Path) -> None:
    both, one, other = lines(1), lines(2), lines(3)
    stored = packed(tmp_path, both, one) + packed(tmp_path, other, both)
    kept = each_once(str(tmp_path), stored, RUN)
    assert {blob.sha256 for blob in kept} == {digest_of(data) for data in (both, one, other)}
    for blob in kept:
        inside = blobs_in(str(tmp_path / object_of(blob.path)))
        assert inside == {row.sha256 for row in kept if object_of(row.path) == object_of(blob.path)}
        assert len(ContentStore(str(tmp_path)).get("t", blob.sha256, blob.path)) == blob.bytes
    (left,) = each_once(str(tmp_path), packed(tmp_path, one, other), RUN, without={("t", digest_of(one))})
    assert blobs_in(str(tmp_path / object_of(left.path))) == {digest_of(other)}


def test_a_blob_that_cannot_be_read_is_missing_after_a_move_and_stops_no_other(tmp_path: Path) -> None:
    good, lost = packed(tmp_path, b"good"), packed(tmp_path, b"lost")
    (tmp_path / object_of(lost[0].path)).unlink()
    new = moved(str(tmp_path), [*good, *lost], LATER)
    found = dict(ContentStore(str(tmp_path)).get_all(new))
    assert [isinstance(data, LakeMissing) for data in found.values()] == [False, True]


def test_an_erased_source_leaves_the_disk_and_the_other_of_its_pack_stays(tmp_path: Path) -> None:
    _, bobs = two_people(tmp_path)
    erase_ada(tmp_path)
    (left,) = objects(str(tmp_path / "lake"))
    assert read_object(str(tmp_path / "lake"), left) == bobs
    assert bytes_anywhere(tmp_path, "all that ada said") == []


def test_a_pin_loses_the_erased_source_and_keeps_the_other(tmp_path: Path) -> None:
    _, bobs = two_people(tmp_path)
    lake = Lake.open(tmp_path / "lake")
    files = files_to_pin(lake, lake.newest(), tuple(SNAPSHOT_TABLES))
    files["cas"] = sorted({object_of(one.path) for one in objects(lake.url)})
    put_pin(lake, Pin(name="kept", snapshot=lake.newest().number, erasure_epoch=0, files=files))
    erase_ada(tmp_path)
    assert bytes_anywhere(tmp_path, "all that ada said") == []
    maintain(lake.url, MaintainOptions(kept_days=0.0))
    pinned = read_pin(lake, "kept").files["blobs"]
    (row,) = [row for path in pinned for row in rows_of_file(tmp_path / "lake" / path)]
    assert ContentStore(lake.url).get("t", row["sha256"], row["path"]) == bobs


def rows_of_file(path: Path) -> list[dict[str, str]]:
    import polars as pl

    return pl.read_parquet(path, hive_partitioning=False, glob=False).to_dicts()


def test_a_pack_that_a_lost_run_left_goes_with_the_erasure_if_it_holds_the_source(tmp_path: Path) -> None:
    adas, bobs = two_people(tmp_path)
    lake = tmp_path / "lake"
    mine = object_of(packed(lake, bobs, adas, run="1-fedcba9876543210")[0].path)
    others = object_of(packed(lake, b"somebody else's", run="1-fedcba9876543210")[0].path)
    erase_ada(tmp_path)
    assert not (lake / mine).exists()
    assert (lake / others).exists()


def test_maintenance_packs_the_sources_that_imports_left_one_by_one(tmp_path: Path) -> None:
    landing, lake = tmp_path / "landing", str(tmp_path / "lake")
    whole = lines(7, 200_000)
    for age in range(4):
        source(landing, whole[: 50_000 * (age + 1)], f"t{age}")
        compact(str(landing), lake)
    before = everything(lake)
    assert len({object_of(one.path) for one in objects(lake)}) == 4
    report = maintain(lake, MaintainOptions(kept_days=0.0))
    assert (report.outcome, report.objects_packed) == ("committed", 4)
    assert everything(lake) == before
    assert verify_objects(lake).problems == []
    stored = [path.stat().st_size for path in (tmp_path / "lake" / "cas").rglob("*") if path.is_file()]
    assert len(stored) == 1
    assert stored[0] < 0.6 * len(whole)
    assert maintain(lake).objects_packed == 0


def test_objects_are_synced_before_the_run_that_names_them_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    story = person(tmp_path / "landing", "ada", "ada", "ada")
    land(tmp_path / "landing", A, 0, story.landed)
    source(tmp_path / "landing", b"all that ada said", "ada")
    compact(str(tmp_path / "landing"), str(tmp_path / "lake"))
    lake = Lake.open(tmp_path / "lake")
    committed = next(place for place, path in enumerate(synced) if "_trajlake/runs/" in path)
    named = {f"{lake.url}/{object_of(path)}" for path in rows(lake.url, "blobs")["path"]}
    assert len(named) == 2
    assert {path for path in synced[:committed] if "/cas/" in path} >= named | {os.path.dirname(path) for path in named}
