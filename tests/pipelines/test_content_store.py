"""Objects of the content store are whole, verified on read, and shared by no two tenants."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from trajlake.pipelines.lakehouse.content_store import ContentStore, object_path
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged, LakeMissing

RUN = "3-0123456789abcdef"


def test_what_was_put_comes_back_and_a_second_put_of_the_run_writes_nothing(tmp_path: Path) -> None:
    store, data = ContentStore(str(tmp_path)), b"\x00output\xff" * 9000
    digest = hashlib.sha256(data).hexdigest()
    blob = store.put("t", digest, data, RUN)
    assert store.get("t", digest, blob.path) == data
    assert (blob.bytes, blob.run, blob.path) == (len(data), 3, f"cas/t/sha256/{digest[:2]}/{digest[2:]}.{RUN}")
    assert blob.stored_bytes == (tmp_path / blob.path).stat().st_size < len(data)
    before = (tmp_path / blob.path).stat()
    assert store.put("t", digest, data, RUN) == blob
    assert (tmp_path / blob.path).stat() == before
    assert oct(before.st_mode)[-3:] == "600"


def test_any_damage_is_found_on_read(tmp_path: Path) -> None:
    store, data = ContentStore(str(tmp_path)), b"x" * 5000
    digest = hashlib.sha256(data).hexdigest()
    path = tmp_path / store.put("t", digest, data, RUN).path
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:4] + b"\x01" + whole[5:], b"junk", whole + b"tail"[:0]):
        path.write_bytes(damaged)
        if damaged == whole:
            assert store.get("t", digest, str(path.relative_to(tmp_path))) == data
        else:
            with pytest.raises(BlobDamaged):
                store.get("t", digest, str(path.relative_to(tmp_path)))
    path.unlink()
    with pytest.raises(LakeMissing, match=digest):
        store.get("t", digest, str(path.relative_to(tmp_path)))


def test_bytes_that_are_not_what_their_name_says_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BlobDamaged, match="hash to"):
        ContentStore(str(tmp_path)).put("t", "0" * 64, b"other", RUN)
    assert list(tmp_path.rglob("*")) == []


def test_tenants_share_no_object_and_dots_do_not_climb() -> None:
    paths = {object_path(tenant, "ab" * 32, RUN) for tenant in ("a", "b", ".", "..")}
    assert len(paths) == 4
    assert all("/../" not in path and "/./" not in path for path in paths)
