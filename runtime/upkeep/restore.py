"""Restore of a root from a backup. What went on in the first root after the backup is unknown here, so:

* **No old token again.** Each trajectory gets a generation that the arbiter of `root.json` never handed out, as a
  tenure that nobody held. Without a common arbiter (no landing, no replica) the first root must be gone: two roots
  cannot be made safe then.
* **No lsn twice.** Every writer of the backup is recovered, sealed and closed for good: the first root may have used
  the lsns behind it. New events go to new writers.
* **No silent going on.** That tenure names a writer that is not here: the log counts as incomplete, so a resume is
  refused until a person says `trajlake resume ID --accept-loss --because TEXT`.

The root is built under a name of its own beside the target and renamed when all of it is durable: after a kill there
is no root at the target, or a whole one.
"""

from __future__ import annotations

from hashlib import sha256 as sha256_of
from typing import Final

import msgspec

from ..env import Env, exists, read_file, write_atomically
from ..leases.file_lease import as_restored
from ..leases.generations import Arbiter, first_token, take_generation
from ..leases.lease import Tenure
from ..root import CLOSED_FILE, LOCK_FILE, ROOT_FILE, Root, RootFacts
from ..stores import arbiter
from ..wal.journal_errors import RootError
from ..wal.recovery import recover_writer
from .backup import FORMAT, MANIFEST, CopiedFile, Copies, Manifest

NOBODY: Final = "restored"
"""Prefix of the writer id in the tenure that a restore adds; no folder ever has it."""


class RestoreReport(msgspec.Struct, kw_only=True):
    """What was restored. `warnings`: what a person must know before anything runs on it."""

    root: str
    taken_at: int
    writers: int = 0
    trajectories: int = 0
    blobs: int = 0
    bytes: int = 0
    recovered: list[str] = []
    warnings: list[str] = []


def restore(env: Env, source: str, target: str) -> RestoreReport:
    """Restore the backup at `source` as the root `target`, which must be empty or absent; durable on return.

    Raises `RootError` (no backup, damaged, a target in use), `SegmentCorrupt`, OSError. Nothing stands at `target`
    then, but generations that were taken stay taken, which does no harm.
    """
    source, target = env.absolute(source), env.absolute(target)
    manifest = read_manifest(env, source)
    if exists(env, target) and env.listdir(target):
        raise RootError(f"{target}: not empty; a root is restored into a new folder")
    building = f"{target}.{env.random_bytes(6).hex()}.restoring"
    report = RestoreReport(root=target, taken_at=manifest.taken_at)
    copies = Copies(env, building)
    records = []
    for file in manifest.files:
        data = _checked(env, source, file)
        if file.path.startswith("trajectories/"):
            records.append((file.path, data))
        else:
            copies.put(file.path, data)
        report.blobs += file.path.startswith("blobs/")
        report.bytes += file.size_bytes
    root = Root.open(building, env, create=False)
    _lease_records(root, arbiter(root), copies, records, report)
    for writer in root.writers():
        _close_for_good(root, writer, manifest, report)
    _describe(root, report)
    if exists(env, target):
        env.rmdir(target)
    env.rename(building, target)
    env.fsync_dir(target.rpartition("/")[0] or "/")
    return report


def read_manifest(env: Env, source: str) -> Manifest:
    """Return the manifest of a backup; raise `RootError` if there is none that this version reads."""
    try:
        manifest = msgspec.json.decode(read_file(env, f"{source}/{MANIFEST}"), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise RootError(f"{source}: no whole backup here ({MANIFEST} is missing); it is written last") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RootError(f"{source}/{MANIFEST}: damaged: {error}") from None
    if manifest.format > FORMAT:
        raise RootError(f"{source}: backup format {manifest.format}, this trajlake knows {FORMAT}; upgrade")
    return manifest


def _checked(env: Env, source: str, file: CopiedFile) -> bytes:
    if file.path.startswith("/") or ".." in file.path.split("/"):
        raise RootError(f"{source}/{MANIFEST}: names {file.path!r}, outside the backup")
    try:
        data = read_file(env, f"{source}/{file.path}")
    except FileNotFoundError:
        raise RootError(f"{source}/{file.path}: missing; the backup is not whole") from None
    if len(data) != file.size_bytes or sha256_of(data).hexdigest() != file.sha256:
        raise RootError(f"{source}/{file.path}: its bytes are not those that were backed up; use another backup")
    return data


def _lease_records(
    root: Root, judge: Arbiter, copies: Copies, records: list[tuple[str, bytes]], report: RestoreReport
) -> None:
    env = root.env
    marker = msgspec.json.encode({"restored_at": env.now_us(), "host": env.host()}) + b"\n"
    for path, text in records:
        key = path.rpartition("/")[2].removesuffix(".json")
        generation = take_generation(judge, key, _generation_after(text), marker)
        tenure = Tenure(
            token=first_token(generation), writer=f"{NOBODY}-{env.random_bytes(8).hex()}", host=env.host(),
            worker=f"restore:{env.host()}:{env.pid()}", first_lsn=0, acquired_at=env.now_us(),
        )  # fmt: skip
        copies.put(path, as_restored(text, path, tenure))
        report.trajectories += 1


def _generation_after(text: bytes) -> int:
    """The generation behind the highest token of a record; `as_restored` refuses a record that is damaged."""
    try:
        tenures = msgspec.json.decode(text)["tenures"]
        return (max(int(tenure["token"]) for tenure in tenures) >> 32) + 1
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return 1


def _close_for_good(root: Root, writer: str, manifest: Manifest, report: RestoreReport) -> None:
    folder = root.writer_folder(writer)
    why = f"restored from a backup of {manifest.source} on {manifest.host}, taken at {manifest.taken_at}\n"
    write_atomically(root.env, f"{folder}/{CLOSED_FILE}", why.encode())
    write_atomically(root.env, f"{folder}/{LOCK_FILE}", b"")
    report.recovered += recover_writer(root.env, folder, bytes.fromhex(writer)).reports
    report.writers += 1


def _describe(root: Root, report: RestoreReport) -> None:
    """Give the restored root an id of its own, and say what is not safe about it."""
    facts = msgspec.structs.replace(root.facts, root_id=root.env.random_bytes(16).hex())
    write_atomically(root.env, f"{root.path}/{ROOT_FILE}", encoded(facts))
    stores = root.facts.stores
    if "landing" not in stores and "replica" not in stores:
        report.warnings.append(
            "no landing or replica arbitrates between this root and the one that was backed up:"
            " never run agents on both"
        )
    if "lease" in stores:
        report.warnings.append(f"lease records are in {stores['lease']}, which this restore did not touch")
    if report.trajectories:
        report.warnings.append(
            "what happened after the backup is unknown here: an open trajectory goes on only with"
            " 'trajlake resume ID --accept-loss --because TEXT'"
        )


def encoded(facts: RootFacts) -> bytes:
    """Return the text of `root.json`."""
    return msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n"
