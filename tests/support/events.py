"""Events for storage tests: any bytes will do for salt and hash, since storage does not check the chain."""

from __future__ import annotations

from hashlib import sha256

from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.envelope import Event


def info_of(trajectory_id: str, tenant: str = "default") -> TrajectoryInfo:
    return TrajectoryInfo(
        tenant=tenant, trajectory_id=trajectory_id, model="scripted", model_version="1", started_on="2026-11-30"
    )


def event_of(trajectory_id: str, sequence_number: int, *, size: int = 100, tenant: str = "default") -> Event:
    """An event whose bytes follow from its id and number alone; its payload has `size` bytes."""
    mark = sha256(f"{tenant}\n{trajectory_id}\n{sequence_number}".encode()).digest()
    text = b'{"name":"' + mark.hex().encode() * (size // 64 + 1)
    return Event(
        tenant=tenant,
        trajectory_id=trajectory_id,
        sequence_number=sequence_number,
        fencing_token=1,
        turn=sequence_number // 4,
        type="VarSet",
        recorded_at=1_800_000_000_000_000 + sequence_number,
        payload=text[: max(size - 2, 9)] + b'"}',
        salt=mark[:16],
        hash=mark,
    )
