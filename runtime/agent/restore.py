"""Restore means the files too. Source: design/agent.md, *Checkpoints, workspace, restore*.

A run never goes on over files older (or younger) than its state: the folder must have the hash that the log names. If
it has not, the newest checkpoint's snapshot is taken and every later recorded change is applied to it, never by running
a tool. Where one cannot be applied, the policy goes back to the checkpoint (`RolledBack`) or stops for a person.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidId
from trajlake.schemas.events import RolledBack, TaskStarted
from trajlake.schemas.state.budget import GRANT, SPAWN
from trajlake.schemas.values import plain_text

from ..checkpoints.checkpoint import CheckpointError, Loaded, load, load_manifest
from ..checkpoints.workspace_restore import restore as make_equal
from ..checkpoints.workspace_tree import Folder, WorkspaceError, read_tree, with_changes
from ..wal.journal_errors import BlobMissing
from .errors import ResumeRefused
from .files import Files
from .requests import Block, Steps
from .session import Session

_logger = logging.getLogger("trajlake")


class CannotApply(Exception):
    """A change of the files is not recorded, or not here: the text says which."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was found: the checkpoint used (number of its event), and what became of the files."""

    checkpoint: int | None = None
    workspace: str = ""


def read_checkpoint(s: Session) -> Steps:
    """Read the newest checkpoint that is not void and can be read here: `s.base`, and `s.base_seq` of its event."""
    for event in reversed(s.events):
        if event.type != "CheckpointSaved" or event.sequence_number in s.left.covered:
            continue
        try:
            loaded: Loaded = yield Block(partial(load, s.ports.blobs, s.tenant, event.body.root))
            manifest = yield Block(partial(load_manifest, s.ports.blobs, s.tenant, event.body.root))
        except CheckpointError as error:
            _logger.warning("trajectory %s: %s", s.trajectory_id, error)
            continue
        if loaded.state.head_hash != s.event_at(loaded.state.sequence_number).hash.hex():
            _logger.warning("trajectory %s: checkpoint %s is of another history", s.trajectory_id, event.body.root)
            continue
        s.saving.seq, s.saving.manifest = event.sequence_number, manifest
        s.use_bases(loaded.state, loaded.turn_start)
        s.base, s.base_seq = loaded, event.sequence_number
        return


def restore(s: Session, workspace: str | None, *, roll_back: bool, because: str) -> Steps:
    """Bring state and files back; return `Restored`. Raises `ResumeRefused` where a person must decide.

    `roll_back`: a person said so, whatever the policy says.
    """
    number, loaded = s.base_seq, s.base
    saved = s.event_at(number) if number is not None else None
    started: TaskStarted = s.events[0].body
    if started.workspace != "tracked":
        return Restored(number, "" if started.workspace == "none" else "as it stands")
    if workspace is None or not s.rules.tracked:
        raise ResumeRefused("workspace", "its files are tracked: give workspace=PATH, where they are or may be put")
    files = Files(s.ports, s.rules, workspace, s.tenant)
    wanted = s.view.state.execution.workspace
    now: Folder | None = yield Block(partial(_look, files))
    if now is not None and now.sha256 == wanted and _last_change_has_a_hash(s):
        files.tree, s.files = now, files
        return Restored(number, "as it stands")
    base = (loaded.workspace if loaded is not None else None) or started.workspace_snapshot
    try:
        first: Folder = yield Block(partial(_read, s, base))
    except CannotApply as gone:
        raise ResumeRefused("workspace", str(gone)) from None
    try:
        tree, applied = yield Block(partial(rebuild, s, first, -1 if number is None else number))
        text = f"restored, {applied} changes applied again"
    except CannotApply as why:
        if not (roll_back or s.rules.rolls_back):
            raise ResumeRefused("workspace", f"{why}; bring the files back, or resume with --roll-back") from None
        yield from roll_back_to(s, saved, because or str(why))
        tree, text = first, f"rolled back to {number}"
    files.tree = yield Block(partial(_make_equal, s, files, tree))
    files.workspace.assume_saved(first)
    s.files = files
    return Restored(number, text)


def rebuild(s: Session, tree: Folder, after: int) -> tuple[Folder, int]:
    """Return the tree that `tree` and the changes recorded after it give, and how many results were applied.

    Blocks. Raises `CannotApply` for a change that was not recorded, or whose bytes are not here.
    """
    applied = 0
    lost: Event | None = None
    for event in s.events[after + 1 :]:
        body: Any = event.body if event.type == "ToolResult" else None
        if body is None or event.sequence_number in s.left.covered or (body.workspace is None and not body.opaque):
            continue
        if body.opaque:
            lost = lost or event
            continue
        tree = _applied(s, tree, event, lost)
        applied, lost = applied + 1, None
    if lost is not None:
        raise CannotApply(_words(lost))
    return tree, applied


def _applied(s: Session, tree: Folder, event: Event, lost: Event | None) -> Folder:
    body = event.body
    try:
        tree = with_changes(tree, body.changes, lambda sha256: len(s.ports.blobs.get(s.tenant, sha256)))
        if tree.sha256 == body.workspace:
            return tree
    except (WorkspaceError, BlobMissing, KeyError) as error:
        raise CannotApply(f"{_words(event)} ({error})") from None
    try:
        return read_tree(body.workspace, partial(s.ports.blobs.get, s.tenant))
    except (WorkspaceError, BlobMissing, InvalidId, KeyError):
        raise CannotApply(_words(lost or event)) from None


def _words(event: Event) -> str:
    by = f"{event.body.tool} ({event.body.action_id}) in turn {event.turn}"
    return f"the change made by {by} cannot be applied again"


def _read(s: Session, base: str | None) -> Folder:
    if base is None:
        raise CannotApply("no snapshot of its files is recorded")
    try:
        return read_tree(base, partial(s.ports.blobs.get, s.tenant))
    except (WorkspaceError, BlobMissing, KeyError) as error:
        raise CannotApply(f"the snapshot of its files is not here ({error})") from None


def _make_equal(s: Session, files: Files, tree: Folder) -> Folder:
    try:
        return make_equal(files.workspace, tree, partial(s.ports.blobs.get, s.tenant))
    except (BlobMissing, KeyError) as error:
        raise ResumeRefused("workspace", f"a file's bytes are not here: {error}") from None


def _look(files: Files) -> Folder | None:
    try:
        return files.workspace.look()
    except WorkspaceError:
        return None


def _last_change_has_a_hash(s: Session) -> bool:
    """Whether the hash that the state names is of the files after the last `local` call."""
    for event in reversed(s.events):
        if event.sequence_number in s.left.covered:
            continue
        if event.type == "CheckpointSaved" and event.body.workspace_snapshot is not None:
            return True
        if event.type == "ToolResult" and (event.body.opaque or event.body.workspace is not None):
            return event.body.workspace is not None
    return True


def roll_back_to(s: Session, saved: Event | None, because: str) -> Steps:
    """Give up everything after a checkpoint, as an event. Raises `ResumeRefused` where an effect lies between."""
    if saved is None:
        raise ResumeRefused("workspace", "there is no checkpoint to go back to; bring the files back")
    crossed = next((event for event in s.events[saved.sequence_number + 1 :] if _reaches_outside(s, event)), None)
    if crossed is not None:
        raise ResumeRefused(
            "workspace",
            f"event {crossed.sequence_number} reached outside after checkpoint {saved.sequence_number}: "
            "going back would forget it; bring the files back, or branch before it",
        )
    yield from s.record(
        RolledBack(to=saved.sequence_number, from_=s.next_seq - 1, because=plain_text(because)[:2000]),
        turn=s.left.turn_of(saved),
    )
    s.learn_roll_backs()
    s.view = s.new_view()
    for event in s.events:
        s.view.apply(event)
    yield from s.barrier()


def _reaches_outside(s: Session, event: Event) -> bool:
    """Whether an effect that going back would forget lies in this event; a child trajectory may hold some."""
    if event.sequence_number in s.left.covered:
        return False
    if event.type == "InputRead":
        return event.body.kind in (GRANT, SPAWN)
    return event.type == "ToolIntent" and event.body.effect in ("idempotent", "external")
