"""Sealed segments for the pipeline bench: many events of about 1 KB, several tenants, days and models, 1 % copies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from tests.pipelines.segments import START_US, Landed, land
from trajlake.runtime.frame import TrajectoryInfo
from trajlake.schemas.chain import commitment, event_hash, genesis
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import MessageAdded, TaskEnded, TaskStarted, ToolIntent, ToolResult, encode_payload

EVENTS_PER_SEGMENT: Final = 50_000
EVENTS_PER_TRAJECTORY: Final = 500
TENANTS, DAYS, MODELS = 4, 5, 2
TEXT_WORDS: Final = 4_000_000


def make_landing(folder: Path, events: int, seed: int = 1) -> int:
    """Fill `folder` with segments of one writer each 50,000 events long; return how many distinct events they hold."""
    rng = random.Random(seed)
    texts = _Texts(rng)
    writer, lsn, made, number = rng.randbytes(16), 0, 0, 0
    pending: list[Landed] = []
    while made < events:
        batch = [_trajectory(number + n, texts, rng) for n in range(EVENTS_PER_SEGMENT // EVENTS_PER_TRAJECTORY)]
        number += len(batch)
        rows = [landed for step in zip(*batch, strict=True) for landed in step]
        made += len(rows)
        copies = rng.sample(pending, min(len(pending), len(rows) // 100))
        pending = rng.sample(rows, len(rows) // 50)
        land(folder, writer, lsn, rows + copies)
        lsn += len(rows) + len(copies)
    return made


def _trajectory(number: int, texts: _Texts, rng: random.Random) -> list[Landed]:
    tenant, day, model = f"tenant-{number % TENANTS}", number // TENANTS % DAYS, number % MODELS
    trajectory_id = f"{rng.getrandbits(128):032x}"
    info = TrajectoryInfo(
        tenant=tenant, trajectory_id=trajectory_id, model=f"model-{model}", model_version="1",
        started_on=f"2026-09-{day + 1:02d}",
    )  # fmt: skip
    prev, landed = genesis(tenant, trajectory_id), []
    for sequence in range(EVENTS_PER_TRAJECTORY):
        kind, payload = texts.payload(sequence)
        salt = rng.randbytes(16)
        at = START_US + day * 86_400_000_000 + sequence * 1_000_000 + number
        sealed = commitment(salt, payload)
        prev = event_hash(prev, tenant, trajectory_id, sequence, kind, 1, 1, sequence // 8, at, sealed)
        event = Event(
            tenant=tenant, trajectory_id=trajectory_id, sequence_number=sequence, fencing_token=1, turn=sequence // 8,
            type=kind, recorded_at=at, payload=payload, salt=salt, hash=prev,
        )  # fmt: skip
        landed.append(Landed(event, info))
    return landed


class _Texts:
    """Endless payloads: no two share a text, and all are words, so that they compress as prose does."""

    def __init__(self, rng: random.Random) -> None:
        words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(20_000)]
        self._text = " ".join(rng.choices(words, k=TEXT_WORDS))
        self._rng = rng
        self._shapes = [self._shape(kind, payload) for kind, payload in _examples()]

    def payload(self, sequence: int) -> tuple[str, bytes]:
        kind, before, after = self._shapes[self._shape_of(sequence)]
        size = self._rng.randint(500, 1300)
        start = self._rng.randrange(len(self._text) - size)
        return kind, before + self._text[start : start + size].encode() + after

    @staticmethod
    def _shape_of(sequence: int) -> int:
        if sequence in (0, EVENTS_PER_TRAJECTORY - 1):
            return 0 if sequence == 0 else 1
        return 2 + sequence % 3

    @staticmethod
    def _shape(kind: str, payload: bytes) -> tuple[str, bytes, bytes]:
        before, _, after = payload.partition(b"TEXT")
        return kind, before, after


def _examples() -> list[tuple[str, bytes]]:
    intent = ToolIntent(
        action_id="7.0", tool="shell", arguments={"command": "TEXT"}, arguments_hash="ab" * 32, key="cd" * 32,
        effect="external",
    )  # fmt: skip
    message = MessageAdded(role="user", wire={"role": "user", "content": "TEXT"}, item_hash="ef" * 32)
    return [
        ("TaskStarted", encode_payload(TaskStarted(task={"text": "TEXT"}, model="model", model_version="1"))),
        ("TaskEnded", encode_payload(TaskEnded(status="completed", reason="TEXT"))),
        ("MessageAdded", encode_payload(message)),
        ("ToolIntent", encode_payload(intent)),
        ("ToolResult", encode_payload(ToolResult(action_id="7.0", status="ok", output="TEXT"))),
    ]
