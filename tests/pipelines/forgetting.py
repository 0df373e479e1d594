"""A small lake whose trajectories can be erased, held and expired: people, blobs, a take-over, an import-like start."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tests.pipelines.segments import Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.schemas.events import MessageAdded

A, B = b"a" * 16, b"b" * 16
SECRET = "Ada Lovelace, 12 Analytical Way"


def picture(of: str) -> bytes:
    return (of.encode() + b" looks like this ") * 4000


def named(landing: Path, data: bytes, tenant: str = "t") -> dict[str, object]:
    """Land a blob and return the reference that an event holds."""
    digest = hashlib.sha256(data).hexdigest()
    path = landing / "blobs" / tenant / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"$blob": digest, "bytes": len(data), "kind": "bytes"}


def digest_of(of: str) -> str:
    return hashlib.sha256(picture(of)).hexdigest()


def person(landing: Path, trajectory_id: str, subject: str, *pictures: str, ended: bool = True, **more: str) -> Story:
    """A trajectory about somebody: their key among its subjects, their address in its text, their pictures as blobs."""
    story = Story(trajectory_id, **more).start(subjects=(subject,)).say(f"{SECRET} {trajectory_id}", 3)  # type: ignore[arg-type]
    for of in pictures:
        wire = {"role": "user", "content": named(landing, picture(of))}
        story.add(MessageAdded(role="user", wire=wire, item_hash="0" * 64))
    return story.end() if ended else story


def a_lake(home: Path) -> Path:
    """Two people over three runs: ada in a1 and a2 (a2 shares a picture with bob's b1), bob in b1 and b2 (open)."""
    landing, lake = home / "landing", home / "lake"
    first = person(landing, "a1", "ada", "ada")
    land(landing, A, 0, first.landed)
    compact(str(landing), str(lake))
    n = len(first.landed)
    for story in (person(landing, "a2", "ada", "both"), person(landing, "b1", "bob", "both", "bob")):
        land(landing, A, n, story.landed)
        n += len(story.landed)
    compact(str(landing), str(lake))
    last = person(landing, "b2", "bob", ended=False)
    land(landing, B, 0, last.landed)
    compact(str(landing), str(lake))
    return lake


def bytes_anywhere(home: Path, text: str) -> list[str]:
    """Return the files below `home` that hold `text`, Parquet and zstd unpacked."""
    return sorted(str(path.relative_to(home)) for path in _files(home) if text in _readable(path))


def _files(home: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(home):
        for name in names:
            yield Path(folder) / name


def _readable(path: Path) -> str:
    if path.suffix == ".parquet" and "_delta_log" not in str(path):
        return str(pl.read_parquet(path, hive_partitioning=False, glob=False).to_dicts())
    data = path.read_bytes()
    if "/cas/" in str(path):
        import zstandard

        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data.decode("utf-8", "replace")
