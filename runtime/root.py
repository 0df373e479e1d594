"""The root: the directory that all processes of a host share. Paths, `root.json`, and claiming a writer."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

import msgspec

from trajlake.schemas.ids import check_tenant

from .blob_store import BlobStore
from .durable_folders import DurableFolders
from .env import REAL_ENV, Env, create_atomically, exists, make_folder, read_file, write_atomically
from .store_urls import check_no_secret
from .wal.barrier_check import file_system_warnings
from .wal.journal_errors import JournalError, RootError, WriterLocked
from .wal.recovery import recover_writer
from .wal.segment_format import FORMAT_MAJOR
from .wal.writer import Writer
from .wal.writer_options import WriterOptions

ROOT_FILE: Final = "root.json"
LOCK_FILE: Final = "LOCK"
CLOSED_FILE: Final = "CLOSED"
"""In the folder of a writer that nobody may go on with: the one it was copied from may have used the lsns behind."""
SEGMENT_AGE_MAX_S: Final = 60.0
"""Age at which a segment is sealed where `root.json` names a landing, so that the lake never lags far behind."""

_LOG: Final = logging.getLogger("trajlake")


class RootFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `root.json` says. `stores` maps lease, mail, replica, gateway, landing to URLs, where they are not files."""

    format: int
    root_id: str
    created_at: int
    stores: dict[str, str] = {}


class Root:
    """An opened root. Cheap: nothing below `root.json` was looked at. Safe to use from any thread."""

    def __init__(self, path: str, env: Env, facts: RootFacts) -> None:
        self.path = path
        self.env = env
        self.facts = facts
        self.blobs = BlobStore(env, f"{path}/blobs")
        self.folders = DurableFolders(env, path)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], env: Env = REAL_ENV, *, stores: dict[str, str] | None = None,
        create: bool = True,
    ) -> Root:  # fmt: skip
        """Open a root, making `root.json` (and its folder) if there is none and `create` is set.

        Touches nothing else, and writes nothing to an existing root unless `stores` names URLs it does not
        know yet: so it works on a read-only disk. Two processes that create at once agree on one. Raises
        `RootError`: no root there (with `create=False`), it cannot be made, its format is newer, or a URL holds
        a secret (a root never does).
        """
        folder = env.absolute(path)
        try:
            for name, url in (stores or {}).items():
                check_no_secret(name, url)
            facts = cls._read(folder, env)
            if facts is None:
                if not create:
                    raise RootError(
                        f"{folder}: no journal here ({ROOT_FILE} is missing); check the path, or 'trajlake config'"
                    )
                facts = cls._create(folder, env)
            if stores and dict(facts.stores) != {**facts.stores, **stores}:
                facts = msgspec.structs.replace(facts, stores={**facts.stores, **stores})
                write_atomically(env, f"{folder}/{ROOT_FILE}", _encode(facts))
        except OSError as error:
            raise RootError(f"{folder}: cannot open the journal: {error}; check path and permissions") from None
        except ValueError as error:
            raise RootError(str(error)) from None
        return cls(folder, env, facts)

    @staticmethod
    def _read(folder: str, env: Env) -> RootFacts | None:
        try:
            text = read_file(env, f"{folder}/{ROOT_FILE}")
        except FileNotFoundError:
            return None
        try:
            facts = msgspec.json.decode(text, type=RootFacts)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise RootError(f"{folder}/{ROOT_FILE}: not a journal's description: {error}") from None
        if facts.format > FORMAT_MAJOR:
            raise RootError(
                f"{folder}: journal format {facts.format}, this trajlake knows {FORMAT_MAJOR}; use a newer trajlake"
            )
        return facts

    @classmethod
    def _create(cls, folder: str, env: Env) -> RootFacts:
        make_folder(env, folder)
        facts = RootFacts(format=FORMAT_MAJOR, root_id=env.random_bytes(16).hex(), created_at=env.now_us())
        if create_atomically(env, f"{folder}/{ROOT_FILE}", _encode(facts)):
            return facts
        theirs = cls._read(folder, env)
        if theirs is None:
            raise RootError(f"{folder}: {ROOT_FILE} went while it was opened; try again")
        return theirs

    # -- paths -------------------------------------------------------------------------------------------------

    def writer_folder(self, writer_id: str) -> str:
        return f"{self.path}/writers/{writer_id}"

    def trajectory_path(self, key: bytes) -> str:
        """The lease record of a trajectory: trajectories/<first byte>/<key>.json, in hex."""
        return f"{self.path}/trajectories/{key.hex()[:2]}/{key.hex()}.json"

    def mail_folder(self, key: bytes) -> str:
        return f"{self.path}/mail/{key.hex()}"

    def checkpoint_folder(self, key: bytes) -> str:
        return f"{self.path}/checkpoints/{key.hex()}"

    def import_folder(self, sha256: str) -> str:
        return f"{self.path}/imports/{sha256}"

    def blob_path(self, tenant: str, sha256: str) -> str:
        return self.blobs.path(check_tenant(tenant), sha256)

    # -- writers -----------------------------------------------------------------------------------------------

    def writers(self) -> list[str]:
        """Return the ids of all writers that have a folder here, sorted. A hidden one is on its way out (`gc`)."""
        try:
            return [name for name in self.env.listdir(f"{self.path}/writers") if not name.startswith(".")]
        except FileNotFoundError:
            return []

    def is_alive(self, writer_id: str) -> bool:
        """Tell whether a process of this host holds a writer. False also for one that has no folder here."""
        try:
            fd = self.env.open(f"{self.writer_folder(writer_id)}/{LOCK_FILE}")
        except FileNotFoundError:
            return False
        try:
            return not self.env.flock(fd, exclusive=False)
        finally:
            self.env.close(fd)

    def claim_writer(self, options: WriterOptions | None = None) -> Writer:
        """Claim a writer that no live process holds, or make one; recover it; return it ready to append.

        A damaged one (`SegmentCorrupt`) is logged and left as it is for `trajlake journal verify`; the next is tried.
        Raises `RootError` where nothing can be written.
        """
        if options is None:
            options = WriterOptions(segment_age_max_s=SEGMENT_AGE_MAX_S if "landing" in self.facts.stores else None)
        for warning in file_system_warnings(self.env.file_system(self.path), self.path):
            _LOG.warning("%s", warning)
        try:
            for writer_id in self.writers():
                try:
                    return self.claim(writer_id, options, create=False)
                except WriterLocked:
                    continue
                except JournalError as error:
                    _LOG.error("%s; another writer is used", error)
            return self._claim_new(options)
        except OSError as error:
            raise RootError(f"{self.path}: cannot write here: {error}; check space and permissions") from error

    def claim(self, writer_id: str, options: WriterOptions, *, create: bool = True) -> Writer:
        """Claim one writer by its id; with `create` it is made if it has no folder.

        Raises `WriterLocked` while a live process holds it, or if it was closed for good or removed; `SegmentCorrupt`
        if it is damaged, or OSError.
        """
        folder = self.writer_folder(writer_id)
        if create:
            self.folders.ensure(folder)
        lock = self._lock_of(folder)
        try:
            # Who made root or writer may have been killed before their names were durable.
            DurableFolders(self.env, self.path).ensure(folder)
            with contextlib.suppress(PermissionError):
                self.env.fsync_dir(self.path.rpartition("/")[0] or "/")
            found = recover_writer(self.env, folder, bytes.fromhex(writer_id))
            writer = Writer(
                self.env, folder, writer_id, next_number=found.next_number, next_lsn=found.next_lsn,
                previous_seal=found.previous_seal, options=options, on_close=lambda: self.env.close(lock),
            )  # fmt: skip
        except BaseException:
            self.env.close(lock)
            raise
        writer.recovery_reports = found.reports
        return writer

    def _lock_of(self, folder: str) -> int:
        """Return the locked LOCK of a writer that may be gone on with; raise `WriterLocked`."""
        path = f"{folder}/{LOCK_FILE}"
        try:
            lock = self.env.open(path, write=True, create=True)
        except FileNotFoundError:
            raise WriterLocked(f"{folder}: was removed meanwhile; claim another") from None
        try:
            if not self.env.flock(lock, exclusive=True):
                raise WriterLocked(f"{folder}: a live process holds this writer; claim another")
            # `gc` renames a folder away while it holds the lock, and a writer's id is never used again.
            if not exists(self.env, path):
                raise WriterLocked(f"{folder}: was removed meanwhile; claim another")
            if exists(self.env, f"{folder}/{CLOSED_FILE}"):
                raise WriterLocked(f"{folder}: closed for good ({CLOSED_FILE} stands in it); claim another")
        except BaseException:
            self.env.close(lock)
            raise
        return lock

    def _claim_new(self, options: WriterOptions) -> Writer:
        """Make a writer and claim it. A process that starts at the same moment may find its folder and lock it first,
        which that process then keeps: each one that gets ahead of us leaves one process less to do so.
        """
        while True:
            with contextlib.suppress(WriterLocked):
                return self.claim(self.env.random_bytes(16).hex(), options)


def _encode(facts: RootFacts) -> bytes:
    return msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n"
