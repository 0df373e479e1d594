"""Checkpoints: the state of a trajectory as content-addressed parts, named by one root object.

Source: design/agent.md, *Checkpoints, workspace, restore*. The root object names each part by its sha256 (or holds a
small one itself), so an unchanged part costs its hash, and every checkpoint is whole by itself: it reads one root, and
deleting an older one breaks none. It holds the state as of `covers`, and, within a turn, as of the turn's start too.

Beside the objects, `checkpoints/<key>/<covers>-<root>.json` in the root says that they are in use: `gc` asks
`live_objects`, and `remove_old` takes the file away, after which the objects are garbage like any blob.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol

import msgspec

from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.ids import trajectory_key
from trajlake.schemas.state import State, from_parts, parts, state_hash

from ..durable_folders import DurableFolders
from ..env import Env, exists, read_file, write_atomically
from ..wal.journal_errors import BlobMissing, JournalError
from .side_by_side import side_by_side
from .workspace_tree import objects_of

VERSION: Final = 1
PART_INLINE_MAX: Final = 512
"""Bytes up to which a part stands in the root object itself: an object of its own would cost a file and a barrier."""
CHUNK_SIZE: Final = 8_192
"""Bytes of one object of a part. Parts grow at their end, so a longer one shares all but its last chunks."""
KEEP: Final = 2
"""Checkpoints of an open trajectory that are kept: the newest, and one to go back to should its bytes be damaged."""
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{64})\.json")
_PIN: Final = ".pin"

Cause = Literal["pause", "move", "before_effect", "end", "interval"]


class CheckpointError(JournalError):
    """A checkpoint cannot be read here; an older one or the whole log serves instead."""


class Objects(Protocol):
    """Where objects are kept: `BlobStore`."""

    def put(self, tenant: str, data: bytes) -> str: ...

    def get(self, tenant: str, sha256: str) -> bytes: ...


class Fold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One state in parts: name -> sha256 of its chunks in order, or name -> the part's own text in `small`."""

    sequence_number: int
    state_hash: str
    parts: dict[str, tuple[str, ...]] = {}
    small: dict[str, str] = {}


ItemRow = tuple[int, str, str]
"""One item of the context: the event that holds it, its hash, and the action whose result it is ("" for none)."""


class Items(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The context in force at `sequence_number`, as rows of JSON in chunks."""

    sequence_number: int
    chunks: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root object. `turn_start` is None where the checkpoint stands at the start of a turn itself.

    `items`: the context in force where that turn begins; None where it is not known.
    """

    version: int
    tenant: str
    trajectory_id: str
    state: Fold
    turn_start: Fold | None = None
    workspace: str | None = None
    items: Items | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file that holds a checkpoint's objects in use. `saved_at` is µs UTC, for people."""

    tenant: str
    trajectory_id: str
    covers: int
    root: str
    cause: str
    saved_at: int = 0
    workspace: str | None = None


START: Final = "start"
"""Cause of the record that holds the snapshot a workspace began with; it has no state."""


def start_record(tenant: str, trajectory_id: str, workspace: str) -> Record:
    """Return the record of the files that a trajectory begins with, until checkpoints take their place."""
    return Record(
        tenant=tenant, trajectory_id=trajectory_id, covers=0, root=workspace, cause=START, workspace=workspace
    )


@dataclass(frozen=True, slots=True)
class Written:
    """What `save` did: the root's sha256, and the bytes that were new, of all the bytes the checkpoint is made of."""

    root: str
    manifest: Manifest
    bytes_written: int
    bytes_whole: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint read back; hashes were checked. `items`: the context in force at `turn_start`, if it was kept."""

    state: State
    turn_start: State
    workspace: str | None
    items: tuple[ItemRow, ...] | None = None


def save(
    objects: Objects, state: State, turn_start: State | None, workspace: str | None, before: Manifest | None = None,
    *, items: Sequence[ItemRow] | None = None,
) -> Written:  # fmt: skip
    """Make a checkpoint's objects durable. `before`: the one saved last, whose parts are known to be held.

    `items`: the context in force at `turn_start`.

    The workspace's objects must be durable already. Nothing is said in the log: `CheckpointSaved` comes after.
    """
    held = _held(before)
    new: dict[str, bytes] = {}
    whole = 0

    def chunked(data: bytes) -> tuple[str, ...]:
        chunks = [data[at : at + CHUNK_SIZE] for at in range(0, len(data), CHUNK_SIZE)]
        names = tuple(hashlib.sha256(chunk).hexdigest() for chunk in chunks)
        new.update((name, chunk) for name, chunk in zip(names, chunks, strict=True) if name not in held)
        return names

    def fold_of(one: State) -> Fold:
        nonlocal whole
        named, small = {}, {}
        for name, data in parts(one).items():
            whole += len(data)
            if len(data) <= PART_INLINE_MAX:
                small[name] = data.decode()
                continue
            named[name] = chunked(data)
        return Fold(sequence_number=one.sequence_number, state_hash=state_hash(one), parts=named, small=small)

    same = turn_start is None or turn_start.sequence_number == state.sequence_number
    manifest = Manifest(
        version=VERSION, tenant=state.tenant, trajectory_id=state.trajectory_id, state=fold_of(state),
        turn_start=None if same or turn_start is None else fold_of(turn_start), workspace=workspace,
        items=None if items is None or turn_start is None else Items(
            sequence_number=turn_start.sequence_number,
            chunks=chunked(b"\n".join(msgspec.json.encode(row) for row in items)),
        ),
    )  # fmt: skip
    side_by_side(partial(objects.put, state.tenant), new.values())
    root = msgspec.json.encode(manifest)
    written = sum(map(len, new.values())) + len(root)
    return Written(objects.put(state.tenant, root), manifest, written, whole + len(root))


def load_manifest(objects: Objects, tenant: str, root: str) -> Manifest:
    """Return the root object of a checkpoint. Raises `CheckpointError`."""
    try:
        manifest = msgspec.json.decode(objects.get(tenant, root), type=Manifest)
    except (BlobMissing, KeyError) as error:
        raise CheckpointError(f"checkpoint {root[:12]}: {error}") from None
    except msgspec.DecodeError as error:
        raise CheckpointError(f"checkpoint {root[:12]}: not a checkpoint: {error}") from None
    if manifest.version > VERSION:
        raise CheckpointError(f"checkpoint {root[:12]}: version {manifest.version}; use a newer trajlake")
    return manifest


def load(objects: Objects, tenant: str, root: str) -> Loaded:
    """Return a checkpoint. Raises `CheckpointError` if an object is missing, damaged, or not of these states."""
    manifest = load_manifest(objects, tenant, root)
    get = partial(objects.get, tenant)
    state = _state(manifest.state, get, root)
    start = state if manifest.turn_start is None else _state(manifest.turn_start, get, root)
    return Loaded(state, start, manifest.workspace, _items(manifest.items, start, get, root))


def _items(items: Items | None, start: State, get: Callable[[str], bytes], root: str) -> tuple[ItemRow, ...] | None:
    if items is None or items.sequence_number != start.sequence_number:
        return None
    try:
        lines = b"".join(get(sha256) for sha256 in items.chunks).splitlines()
        return tuple(msgspec.json.decode(line, type=ItemRow) for line in lines)
    except (BlobMissing, KeyError, msgspec.DecodeError) as error:
        raise CheckpointError(f"checkpoint {root[:12]}: {error}") from None


def objects_in(objects: Objects, tenant: str, root: str) -> set[str]:
    """Return the sha256 of everything a checkpoint needs: its root, parts, and its workspace's folders and files."""
    manifest = load_manifest(objects, tenant, root)
    found = {root, *_held(manifest)}
    if manifest.workspace is not None:
        found |= objects_of(manifest.workspace, partial(objects.get, tenant))
    return found


def _held(manifest: Manifest | None) -> set[str]:
    folds = () if manifest is None else (manifest.state, manifest.turn_start)
    found = {sha256 for fold in folds if fold is not None for chunks in fold.parts.values() for sha256 in chunks}
    return found if manifest is None or manifest.items is None else found.union(manifest.items.chunks)


def _state(fold: Fold, get: Callable[[str], bytes], root: str) -> State:
    try:
        named: dict[str, bytes] = {name: text.encode() for name, text in fold.small.items()}
        named |= {name: b"".join(get(sha256) for sha256 in chunks) for name, chunks in fold.parts.items()}
        state = from_parts(named)
    except (BlobMissing, KeyError, InvalidEvent) as error:
        raise CheckpointError(f"checkpoint {root[:12]}: {error}") from None
    if state_hash(state) != fold.state_hash:
        raise CheckpointError(f"checkpoint {root[:12]}: its parts do not give the state it was saved with")
    return state


class CheckpointFiles:
    """The files that say which checkpoints are in use. Any thread and process."""

    def __init__(self, env: Env, root_path: str) -> None:
        self._env = env
        self._top = f"{root_path}/checkpoints"
        self._folders = DurableFolders(env, root_path)

    def note(self, record: Record) -> None:
        """Say durably that a checkpoint's objects are in use: after they are durable, before the log names them."""
        self._folders.ensure(self._folder(record.tenant, record.trajectory_id))
        write_atomically(self._env, self.path(record), msgspec.json.encode(record))

    def of(self, tenant: str, trajectory_id: str) -> list[Record]:
        """Return the checkpoints of one trajectory that are in use, oldest first."""
        return list(self._records(self._folder(tenant, trajectory_id)))

    def all(self) -> Iterator[Record]:
        """Every checkpoint that is in use."""
        for key in self._list(self._top):
            yield from self._records(f"{self._top}/{key}")

    def pin(self, record: Record) -> None:
        """Keep a checkpoint whatever `remove_old` is asked: a branch or a person needs it."""
        write_atomically(self._env, f"{self.path(record)}{_PIN}", b"")

    def unpin(self, record: Record) -> None:
        """Take the pin away."""
        with contextlib.suppress(FileNotFoundError):
            self._env.unlink(f"{self.path(record)}{_PIN}")

    def remove_old(self, tenant: str, trajectory_id: str, newest_covers: int, keep: int = KEEP) -> list[Record]:
        """Give up checkpoints older than the `keep` newest that cover at most `newest_covers`; return them.

        Call it only when the `CheckpointSaved` of `newest_covers` is durable and the lease was shown to be held after
        that: then no worker can ever need an older one. Pinned ones stay. Killed anywhere, it has removed some whole
        files: each checkpoint is in use or not.
        """
        folder = self._folder(tenant, trajectory_id)
        pinned = {name for name in self._list(folder) if name.endswith(_PIN)}
        mine = [one for one in self._records(folder) if one.covers <= newest_covers]
        gone = []
        for record in mine[: max(0, len(mine) - max(1, keep))]:
            path = self.path(record)
            if f"{path.rpartition('/')[2]}{_PIN}" in pinned:
                continue
            with contextlib.suppress(FileNotFoundError):
                self._env.unlink(path)
            gone.append(record)
        if gone:
            self._env.fsync_dir(folder)
        return gone

    def _records(self, folder: str) -> Iterator[Record]:
        for name in self._list(folder):
            if _NAME.fullmatch(name) is None:
                continue
            path = f"{folder}/{name}"
            try:
                yield msgspec.json.decode(read_file(self._env, path), type=Record)
            except FileNotFoundError:
                continue
            except msgspec.DecodeError as error:
                raise CheckpointError(f"{path}: does not say what a checkpoint needs: {error}") from None

    def is_in_use(self, record: Record) -> bool:
        """Whether the file of a checkpoint still stands: one that was given up since loses its objects to `gc`."""
        return exists(self._env, self.path(record))

    def path(self, record: Record) -> str:
        """The file that says that a checkpoint is in use."""
        return f"{self._folder(record.tenant, record.trajectory_id)}/{record.covers:020}-{record.root}.json"

    def _folder(self, tenant: str, trajectory_id: str) -> str:
        return f"{self._top}/{trajectory_key(tenant, trajectory_id).hex()}"

    def _list(self, folder: str) -> list[str]:
        try:
            return self._env.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []


def live_objects(files: CheckpointFiles, objects: Objects) -> Mapping[str, set[str]]:
    """Return tenant -> sha256 of every object that a checkpoint in use needs: `gc` must not remove these.

    Raises `CheckpointError` for one that cannot be read: then nothing may be called garbage.
    """
    found: dict[str, set[str]] = {}
    for record in files.all():
        needed = found.setdefault(record.tenant, set())
        if record.root not in needed:
            needed |= objects_of_record(objects, record)
    return found


def objects_of_record(objects: Objects, record: Record) -> set[str]:
    """Return the sha256 of everything that a checkpoint in use needs. Raises `CheckpointError`, `WorkspaceError`."""
    try:
        if record.cause == START:
            return objects_of(record.root, partial(objects.get, record.tenant))
        return objects_in(objects, record.tenant, record.root)
    except BlobMissing as error:
        raise CheckpointError(f"checkpoint {record.root[:12]}: {error}") from None
