"""Sealed segments for the pipeline bench: many events of about 1 KB, several tenants, days and models, 1 % copies.

Two kinds of text. `prose`: no two payloads share a line, so nothing but their words compresses. `code`: what a coding
agent sees, numbered lines of source files (Python's own library), of which a trajectory reads four again and again.
"""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from tests.pipelines.segments import START_US, Landed, Story, land
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.chain import commitment, event_hash, genesis
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import MessageAdded, TaskEnded, TaskStarted, ToolIntent, ToolResult, encode_payload

EVENTS_PER_TRAJECTORY: Final = 500
TENANTS, DAYS, MODELS = 4, 5, 2
TEXT_WORDS: Final = 4_000_000


def make_landing(
    folder: Path, events: int, seed: int = 1, *, texts: Literal["prose", "code"] = "prose", per_segment: int = 50_000
) -> int:
    """Fill `folder` with segments of one writer, `per_segment` events each; return how many distinct events they hold.

    Whole trajectories only: at least one segment's worth, which is at least `EVENTS_PER_TRAJECTORY`.
    """
    rng = random.Random(seed)
    source = _Texts(rng) if texts == "prose" else _Code(rng)
    writer, lsn, made, number = rng.randbytes(16), 0, 0, 0
    pending: list[Landed] = []
    while made < events:
        batch = [_trajectory(number + n, source, rng) for n in range(max(1, per_segment // EVENTS_PER_TRAJECTORY))]
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
        return kind, before + self._some(sequence) + after

    def _some(self, _: int) -> bytes:
        size = self._rng.randint(500, 1300)
        start = self._rng.randrange(len(self._text) - size)
        return self._text[start : start + size].encode()

    @staticmethod
    def _shape_of(sequence: int) -> int:
        if sequence in (0, EVENTS_PER_TRAJECTORY - 1):
            return 0 if sequence == 0 else 1
        return 2 + sequence % 3

    @staticmethod
    def _shape(kind: str, payload: bytes) -> tuple[str, bytes, bytes]:
        before, _, after = payload.partition(b"TEXT")
        return kind, before, after


class _Code(_Texts):
    """Texts of a coding agent: windows of 8 to 34 numbered lines out of the four files that its trajectory reads."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._shapes = [self._shape(kind, payload) for kind, payload in _examples()]
        self._open: list[Sequence[str]] = []

    def _some(self, sequence: int) -> bytes:
        if sequence == 0:
            self._open = self._rng.sample(_source_files(), 4)
        lines, count = self._rng.choice(self._open), self._rng.randint(8, 34)
        start = self._rng.randrange(len(lines) - count)
        return json.dumps("\n".join(lines[start : start + count]))[1:-1].encode()


@cache
def _source_files() -> list[Sequence[str]]:
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [path.read_text(encoding="utf-8", errors="replace").splitlines() for path in paths]
    return [[f"{n:6}\t{line}" for n, line in enumerate(lines, start=1)] for lines in texts if len(lines) > 200]


def make_blob_landing(folder: Path, segments: int, blobs: int, lines: int, seed: int = 1) -> int:
    """Fill `folder` with segments whose every event names a blob of `lines` lines of code; return their bytes."""
    rng, total, lsn = random.Random(seed), 0, 0
    writer, files = rng.randbytes(16), _source_files()
    for segment in range(segments):
        story = Story(f"run {segment}", seed=seed).start()
        for place in range(blobs):
            text = "\n".join(line for _ in range(lines // 100) for line in _window(rng, files)).encode()
            digest = sha256(text).hexdigest()
            path = folder / "blobs" / story.info.tenant / digest[:2] / digest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            output = {"$blob": digest, "bytes": len(text), "kind": "text", "head": text[:40].decode(errors="replace")}
            story.add(ToolResult(action_id=f"{place}.0", status="ok", output=output))
            total += len(text)
        land(folder, writer, lsn, story.landed)
        lsn += len(story.landed)
    return total


def _window(rng: random.Random, files: list[Sequence[str]]) -> Sequence[str]:
    lines = rng.choice(files)
    start = rng.randrange(len(lines) - 100)
    return lines[start : start + 100]


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
