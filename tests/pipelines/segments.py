"""Sealed segments for tests: real events through the real frame and index code, without a writer's threads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.wal.frame import TrajectoryInfo, prepare
from trajlake.runtime.wal.segment import Group, segment_path, write_sealed
from trajlake.runtime.wal.segment_format import SegmentHeader
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import LeaseAcquired, MessageAdded, Payload, TaskEnded, TaskStarted

START_US = 1_790_000_000_000_000


class Landed(NamedTuple):
    """An event and the trajectory it belongs to."""

    event: Event
    info: TrajectoryInfo


def land(landing: Path, writer: bytes, first_lsn: int, landed: Sequence[Landed]) -> Path:
    """Put a sealed segment, lsns from `first_lsn` on, where a shipper would, and return its path."""
    folder = landing / "writers" / writer.hex()
    folder.mkdir(parents=True, exist_ok=True)
    header = SegmentHeader(writer, 0, first_lsn, 7, 1 << 26, 0, bytes(16), START_US, 0, bytes(32), 1)
    groups = [Group([prepare(event, info)], info) for event, info in landed]
    write_sealed(REAL_ENV, str(folder), header, groups)
    path = folder / f"{first_lsn:020d}-{first_lsn + len(landed) - 1:020d}.seg"
    os.replace(segment_path(str(folder), 0), path)
    return path


class Story:
    """Builds one trajectory event by event, chained as the runtime chains it."""

    def __init__(
        self,
        trajectory_id: str,
        *,
        tenant: str = "t",
        model: str = "m",
        version: str = "1",
        day: str = "2026-11-30",
        seed: int = 0,
    ) -> None:
        self.info = TrajectoryInfo(
            tenant=tenant, trajectory_id=trajectory_id, model=model, model_version=version, started_on=day
        )
        self.random = random.Random(f"{seed} {tenant} {trajectory_id}")
        self.landed: list[Landed] = []
        self.token = 1
        self.turn = -1
        self.prev = genesis(tenant, trajectory_id)

    def add(self, payload: Payload, *, number: int | None = None) -> Event:
        """Append one event and return it."""
        event = make_event(
            payload,
            tenant=self.info.tenant,
            trajectory_id=self.info.trajectory_id,
            sequence_number=len(self.landed) if number is None else number,
            fencing_token=self.token,
            turn=self.turn,
            recorded_at=START_US + 1_000_000 * (len(self.landed) if number is None else number),
            salt=self.random.randbytes(16),
            prev=self.prev,
        )
        self.prev = event.hash
        self.landed.append(Landed(event, self.info))
        return event

    def start(self, **fields: object) -> Story:
        self.add(
            TaskStarted(task={"text": "do it"}, model=self.info.model, model_version=self.info.model_version, **fields)
        )  # type: ignore[arg-type]
        return self

    def say(self, text: str, times: int = 1) -> Story:
        for n in range(times):
            self.add(MessageAdded(role="user", wire={"role": "user", "content": f"{text} {n}"}, item_hash=f"{n:064x}"))
        return self

    def end(self, status: str = "completed") -> Story:
        self.add(TaskEnded(status=status))  # type: ignore[arg-type]
        return self

    def takeover(self, after: int, token: int) -> Story:
        """Return another tenure of the same trajectory that follows event number `after` of this one."""
        other = Story.__new__(Story)
        other.info, other.random, other.turn = self.info, random.Random(f"{token} {after}"), self.turn
        other.landed = self.landed[: after + 1]
        before = self.landed[after].event
        other.prev, other.token = before.hash, token
        other.add(
            LeaseAcquired(
                token=token, after_token=before.fencing_token, after_sequence=after, after_hash=before.hash.hex()
            )
        )
        return other


def interleaved(stories: Iterable[Story], rng: random.Random) -> list[Landed]:
    """Return the events of several trajectories in one order that keeps each of them in its own."""
    queues = [list(story.landed) for story in stories if story.landed]
    merged: list[Landed] = []
    while queues:
        queue = rng.choice(queues)
        merged.append(queue.pop(0))
        if not queue:
            queues.remove(queue)
    return merged
