"""Old files of an erasure: what kept snapshots and pins still name that holds the text.

Snapshots that name such a file are marked expired (no version of it may be read), pins get rewritten files, and only
then the files go.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.curate.pinned import PinnedLake
from trajlake.pipelines.forgetting.erase_places import Target
from trajlake.pipelines.forgetting.forget import BLOB, KEY, has_text, hits, leaving_and_shared, texts_null
from trajlake.pipelines.lakehouse.commit import Step, no_step
from trajlake.pipelines.lakehouse.content_objects import blobs_of, rows_of
from trajlake.pipelines.lakehouse.content_store import folder_of, object_path
from trajlake.pipelines.lakehouse.lake import DataFile, Lake, now_text
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.packs import FOLDER as PACKS
from trajlake.pipelines.lakehouse.packs import blobs_in, moved
from trajlake.pipelines.lakehouse.pins import Pin, all_pins, pin_path
from trajlake.pipelines.lakehouse.places import entries, exists, put_replacing, sync_all, walk
from trajlake.pipelines.lakehouse.protocol import may_remove
from trajlake.pipelines.lakehouse.snapshot import Expired, put_expired
from trajlake.pipelines.lakehouse.standing import keys_frame
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows, write_files
from trajlake.pipelines.upkeep.vacuum import data_files, objects_in, remove_now, what_is_named
from trajlake.schemas.tables import SNAPSHOT_TABLES

CUT_EPOCH = "cut_erasure_epoch"
"""In a pin's detail: the epoch its set was cut at, before erasures rewrote the pin. `curate recut` goes by it."""


class _Frames(NamedTuple):
    keys: pl.DataFrame
    imports: pl.DataFrame
    blobs: pl.DataFrame


def remove_old_files(lake: Lake, target: Target, why: str, run: str, epoch: int, step: Step = no_step) -> list[str]:
    """Expire snapshots, rewrite pins, remove files that hold the text; return the snapshots that expired.

    `run` is the run that applied the erasure: files written for pins carry its name, which keeps vacuum away from
    them until the erasure is complete.
    """
    frames = _frames(target)
    newest = lake.newest()
    clean = {f"{t}/{file.relative}" for t in SNAPSHOT_TABLES for file in lake.files(newest, t)}
    dirty: set[str] = set()
    expire: list[int] = []
    for number in lake.snapshot_numbers():
        if number < newest.number:
            found = _dirty(lake, number, frames, clean)
            if found:
                dirty |= found
                expire.append(number)
    for number in expire:
        put_expired(lake.url, Expired(snapshot=number, why=why, at=now_text()))
        step("snapshot expired")
    for pin in all_pins(lake):
        dirty |= _rewrite_pin(lake, pin, frames, run, epoch, step)
    dirty |= _orphans(lake, frames, clean)
    named = what_is_named(lake)
    objects = {path for path in _objects_of(lake, target) if path not in named.by_snapshots | named.by_pins}
    remove_now(lake, (dirty | objects) - named.by_snapshots - named.by_pins, step)
    return [str(number) for number in expire]


def _frames(target: Target) -> _Frames:
    pairs = dict.fromkeys(BLOB, pl.String)
    return _Frames(
        keys_frame(target.keys),
        pl.DataFrame(sorted(target.imports), schema=pairs, orient="row"),
        pl.DataFrame(sorted(target.blobs), schema=pairs, orient="row"),
    )


def _dirty(lake: Lake, number: int, frames: _Frames, clean: set[str]) -> set[str]:
    """Return the files of a snapshot (below the lake) that hold the text, or list a blob that is gone.

    None of one that maintenance expires at this moment: what it named and left is found among the orphans.
    """
    found = set()
    try:
        snapshot = lake.snapshot(number)
        for table in SNAPSHOT_TABLES:
            files = [f for f in lake.files(snapshot, table) if f"{table}/{f.relative}" not in clean]
            found |= {f"{table}/{f.relative}" for f in files if _is_dirty(f, table, frames)}
    except (LakeError, OSError):
        if number in lake.snapshot_numbers():
            raise
        return set()
    return found


def _is_dirty(file: DataFile, table: str, frames: _Frames) -> bool:
    described = SNAPSHOT_TABLES[table]
    if table == "blobs":
        return len(frames.blobs) > 0 and hits(file, frames.blobs, BLOB)
    keys, on = (frames.imports, BLOB) if table == "imports" else (frames.keys, KEY)
    if not len(keys) or on[1] not in described.column_names:
        return False
    if on == KEY and not may_hold([file], keys):
        return False
    if not hits(file, keys, on):
        return False
    rows = read_rows([file], described).join(keys, on=on, how="semi")
    return bool(rows.select(has_text(described).any()).item())


def _rewrite_pin(lake: Lake, pin: Pin, frames: _Frames, run: str, epoch: int, step: Step) -> set[str]:
    """Give a pin files without the text; return the files it named that hold it."""
    pinned = PinnedLake(lake.url, pin)
    files: dict[str, list[str]] = {}
    dirty: set[str] = set()
    for table, paths in pin.files.items():
        files[table] = list(paths)
        if table not in SNAPSHOT_TABLES:
            continue
        for file in pinned.files(lake.newest(), table):
            below = f"{table}/{file.relative}"
            if _is_dirty(file, table, frames):
                dirty.add(below)
                files[table].remove(below)
                files[table] += _clean_copy(lake, file, table, frames, run)
                step("pin file written")
        files[table].sort()
    if "cas" in files and "blobs" in files:
        named = {name for path in files["blobs"] for name in objects_in(lake.path(path))}
        files["cas"] = sorted(named.intersection(files["cas"]))
    if dirty:
        detail = {CUT_EPOCH: pin.erasure_epoch, **pin.detail}
        new = msgspec.structs.replace(pin, files=files, erasure_epoch=max(epoch, pin.erasure_epoch), detail=detail)
        sync_all([lake.path(path) for table in files for path in set(files[table]) - set(pin.files[table])], lake.url)
        if exists(pin_path(lake, pin.name)):
            put_replacing(pin_path(lake, pin.name), msgspec.json.encode(new))
            step("pin replaced")
    return dirty


def _clean_copy(lake: Lake, file: DataFile, table: str, frames: _Frames, run: str) -> list[str]:
    described = SNAPSHOT_TABLES[table]
    rows = read_rows([file], described)
    if table == "blobs":
        leaving, shared = leaving_and_shared(rows, frames.blobs)
        alone = rows.join(pl.concat([leaving, shared]), on=BLOB, how="anti")
        rows = pl.concat([alone, rows_of(moved(lake.url, blobs_of(shared), run))])
    else:
        keys, on = (frames.imports, BLOB) if table == "imports" else (frames.keys, KEY)
        mine = texts_null(described)(rows.join(keys, on=on, how="semi", maintain_order="left"))
        rest = rows.join(keys, on=on, how="anti", maintain_order="left")
        rows = pl.concat([rest, mine.select(rest.columns)]).sort(described.sort_by, nulls_last=True)
    adds = write_files(rows, described, lake.path(table), run, tuple(file.partition), "pin")
    return [f"{table}/{add.path}" for add in adds]


def _orphans(lake: Lake, frames: _Frames, clean: set[str]) -> set[str]:
    """Return files on disk that nothing need name and that hold the text: of lost runs and of expired snapshots."""
    decided = set(lake.all_snapshot_numbers())
    newest = lake.newest()
    found = set()
    for path, run in data_files(lake):
        free = may_remove(run, snapshots=decided, is_named=path in clean, is_pinned=False, pending_runs=())
        if free:
            table = path.partition("/")[0]
            alone = Pin(name="orphan", snapshot=0, erasure_epoch=0, files={table: [path]})
            try:
                if any(_is_dirty(file, table, frames) for file in PinnedLake(lake.url, alone).files(newest, table)):
                    found.add(path)
            except (LakeError, OSError):
                if exists(lake.path(path)):
                    raise
    return found


def _objects_of(lake: Lake, target: Target) -> set[str]:
    """Return the content objects (below the lake) of the blobs that go, whichever run wrote them."""
    found = set()
    for tenant, digest in target.blobs:
        stem = object_path(tenant, digest, "")
        folder = os.path.dirname(lake.path(stem))
        prefix = os.path.basename(stem)
        found |= {f"{os.path.dirname(stem)}/{name}" for name in entries(folder) if name.startswith(prefix)}
    listed = {path for file in lake.files(lake.newest(), "blobs") for path in objects_in(file.path)}
    return (found | _packs_of(lake, target, listed)) - listed


def _packs_of(lake: Lake, target: Target, listed: set[str]) -> set[str]:
    """Return the packs (below the lake) other than those `listed` that hold one of the blobs that go."""
    found = set()
    for tenant in {tenant for tenant, _ in target.blobs}:
        folder = f"{folder_of(tenant)}/{PACKS}"
        gone = {digest for owner, digest in target.blobs if owner == tenant}
        for path in (f"{folder}/{below}" for below in walk(lake.path(folder))):
            with suppress(FileNotFoundError):
                if path not in listed and blobs_in(lake.path(path)) & gone:
                    found.add(path)
    return found
