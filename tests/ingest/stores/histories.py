"""Events of trajectories for the warm tier: real payloads, chained, in the hands of one or more workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas import events as types
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event

NOW_US = 1_790_000_000_000_000


def info(trajectory_id: str = "order-7", tenant: str = "default") -> TrajectoryInfo:
    return TrajectoryInfo(
        tenant=tenant, trajectory_id=trajectory_id, model="m", model_version="2", started_on="2026-11-30"
    )


class History:
    """Makes the events of one trajectory under one token. `then` goes on under another, from any event."""

    def __init__(self, trajectory_id: str = "order-7", tenant: str = "default", token: int = 1, salt: int = 0) -> None:
        self.info = info(trajectory_id, tenant)
        self.token, self.salt = token, salt
        self.events: list[Event] = []
        self.number, self.prev = 0, genesis(tenant, trajectory_id)

    def add(self, payload: Any, turn: int = 0) -> Event:
        event = make_event(
            payload, tenant=self.info.tenant, trajectory_id=self.info.trajectory_id, sequence_number=self.number,
            fencing_token=self.token, turn=turn, recorded_at=NOW_US + self.number,
            salt=bytes([self.salt]) * 16, prev=self.prev,
        )  # fmt: skip
        self.events.append(event)
        self.number, self.prev = self.number + 1, event.hash
        return event

    def start(self, **fields: Any) -> Event:
        return self.add(types.TaskStarted(task={"text": "go"}, **fields), turn=-1)

    def say(self, count: int = 1) -> list[Event]:
        return [self.add(types.VarSet(name="x", value=self.number)) for _ in range(count)]

    def intent(self, action_id: str, **fields: Any) -> Event:
        given = {"tool": "charge", "arguments_hash": "ab", "key": "cd", "effect": "external"} | fields
        return self.add(types.ToolIntent(action_id=action_id, **given))

    def result(self, action_id: str, status: str = "ok") -> Event:
        return self.add(types.ToolResult(action_id=action_id, status=status, tool="charge"))

    def then(self, token: int, after: Event) -> History:
        """Another worker takes over behind `after`."""
        later = History(self.info.trajectory_id, self.info.tenant, token, self.salt)
        later.number, later.prev = after.sequence_number + 1, after.hash
        later.add(types.LeaseAcquired(
            token=token, after_token=after.fencing_token, after_sequence=after.sequence_number,
            after_hash=after.hash.hex(), worker=f"w{token}",
        ))  # fmt: skip
        return later


def write(root: Root, *runs: Sequence[Event], close: bool = True) -> None:
    """Append each run in a writer of its own, durably."""
    for events in runs:
        writer = root.claim(root.env.random_bytes(16).hex(), _options())
        ticket = None
        for event in events:
            ticket = writer.append([event], info(event.trajectory_id, event.tenant))
        if ticket is not None:
            ticket.wait()
        writer.close()


def _options() -> Any:
    from trajlake.runtime.wal.writer_options import WriterOptions

    return WriterOptions()
