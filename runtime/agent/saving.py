"""When and how a trajectory in hand is checkpointed. Source: design/agent.md, *Checkpoints, workspace, restore*.

The log is durable first, then workspace and state, then the file that holds them in use, then `CheckpointSaved`. The
document's list of the four moments is lost; by its criterion (a point one may need to return to, or must never lose)
ours are: whenever the worker is released, before a planned move, before an effect that the log cannot reproduce where
the policy asks for it, and at the end. Otherwise the interval is Daly's, in whole turns, from what was measured.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trajlake.schemas.events import CheckpointSaved

from ..checkpoints.checkpoint import Cause, Manifest, Record, Written, save
from ..checkpoints.interval import turns_between
from ..checkpoints.workspace_tree import WorkspaceError
from .files import kept_everywhere
from .requests import Block, Steps

if TYPE_CHECKING:
    from trajlake.schemas.state import State

    from .context import Item
    from .session import Session
    from .view import View

_logger = logging.getLogger("trajlake")

FIRST_PAUSE_S = 0.05
"""How long a checkpoint is taken to last before one was measured."""


@dataclass(slots=True)
class Saving:
    """What is known of the checkpoints of a session. `seq`: the newest `CheckpointSaved` that is not void."""

    seq: int = -1
    manifest: Manifest | None = None
    turn_state: State | None = None
    turn_items: Sequence[Item] | None = None
    pause_s: float = FIRST_PAUSE_S
    turns: int = 0
    began_s: float | None = None
    turn_s: float = 0.0

    def turn_stands(self, view: View) -> None:
        """Note what the state and the context are where a turn begins: a checkpoint within it holds both."""
        self.turn_state, self.turn_items = view.state, tuple(view.context.items)

    def turn_begins(self, now_s: float) -> None:
        """Note the time at which a turn begins; the mean length of a turn follows the last few."""
        if self.began_s is not None:
            took_s = now_s - self.began_s
            self.turn_s = took_s if self.turn_s == 0 else 0.8 * self.turn_s + 0.2 * took_s
            self.turns += 1
        self.began_s = now_s


def is_due(s: Session) -> bool:
    """Whether the interval is over where a turn ends."""
    wanted = s.rules.every_turns or turns_between(s.saving.pause_s, s.rules.mtbf_s, s.saving.turn_s)
    return s.saving.turns >= wanted


def checkpoint(s: Session, cause: Cause) -> Steps:
    """Save a checkpoint of everything recorded so far. It is durable with the next barrier; old ones stay till then.

    No body of ours runs where this is called. Nothing is saved where the state does not stand at the end of the log
    (a turn is being served), nothing happened since the last one, or the files do not keep still: the log goes on.
    """
    files = s.ports.checkpoints
    if files is None or s.view.applied != s.next_seq - 1 or s.saving.seq == s.next_seq - 1:
        return
    started_s = s.ports.now_s()
    yield from s.barrier()
    state = s.view.state
    workspace = None
    tracked = s.files
    if tracked is not None:
        try:
            workspace = yield Block(tracked.snapshot)
        except WorkspaceError as error:
            _logger.warning("trajectory %s: no checkpoint (%s): %s", s.trajectory_id, cause, error)
            return
    objects, saving = kept_everywhere(s.ports.blobs), s.saving
    items = None if saving.turn_items is None else [(one.ref, one.hash, one.action_id) for one in saving.turn_items]
    written: Written = yield Block(
        partial(save, objects, state, saving.turn_state, workspace, saving.manifest, items=items)
    )
    record = Record(
        tenant=s.tenant, trajectory_id=s.trajectory_id, covers=state.sequence_number, root=written.root, cause=cause,
        saved_at=s.ports.env.now_us(), workspace=workspace,
    )  # fmt: skip
    yield Block(partial(files.note, record))
    pause_s = s.ports.now_s() - started_s
    event = yield from s.record(
        CheckpointSaved(
            covers=state.sequence_number, state_hash=written.manifest.state.state_hash, root=written.root, cause=cause,
            workspace_snapshot=workspace, pause_ms=round(pause_s * 1000, 3),
            bytes_written=written.bytes_written + (tracked.bytes_written if tracked is not None else 0),
        )
    )  # fmt: skip
    saving.seq, saving.manifest, saving.turns = event.sequence_number, written.manifest, 0
    saving.pause_s = pause_s if saving.pause_s == FIRST_PAUSE_S else 0.5 * (saving.pause_s + pause_s)


def forget_old(s: Session) -> Steps:
    """Give up checkpoints that nobody can need any more. Call it after a barrier and a lease check that followed it."""
    files = s.ports.checkpoints
    if files is not None and s.saving.manifest is not None and s.saving.seq >= 0:
        covers = s.saving.manifest.state.sequence_number
        yield Block(partial(files.remove_old, s.tenant, s.trajectory_id, covers, s.rules.keep))
