"""Checkpoints three ways at 10, 100 and 1,000 turns: full snapshots, a chain of deltas, and content-addressed parts.

Each turn adds a reply, a call and 2 KB of variables; a checkpoint is saved after every tenth part of the turns (at
least one turn). For each way: the pause of the last checkpoint, bytes written in all and per new byte, the time to
restore the last state, and what can be deleted after it. Ours is the third: a pause and bytes like a delta's, a restore
that reads one root like a full snapshot's, and any older one can go at any time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Row
from tests.schemas.logs import Log
from trajlake.runtime.blob_store import BlobStore
from trajlake.runtime.checkpoints.checkpoint import load, save
from trajlake.runtime.env import REAL_ENV, read_file, write_atomically
from trajlake.schemas import events as e
from trajlake.schemas.state import Folder, State, fold, initial, parts, state_bytes, state_from

TURNS = (10, 100, 1_000)
CHECKPOINTS = 50
"""At most this many in a run: the pause is that of the last, the bytes are those of all."""


def story(turns: int) -> list[Any]:
    """The events of a run of so many turns."""
    log = Log()
    log.add(e.TaskStarted(task={"text": "mend"}, model="m"))
    for turn in range(turns):
        built = log.add(e.ContextBuilt(context_hash=f"{turn:064}", append=(log.next - 1,)), turn)
        call = e.ProposedCall(tool="edit", provider_id=f"call-{turn}")
        reply = log.add(e.ModelReplied(raw="x" * 200, format="f", context=built.sequence_number, calls=(call,)))
        action = f"{reply.sequence_number}.0"
        digest = f"{turn:064}"
        log.add(e.ToolIntent(action_id=action, tool="edit", arguments_hash=digest, key=digest, effect="local"))
        log.add(e.ToolResult(action_id=action, status="ok", tool="edit", output="done"))
        log.add(e.VarSet(name=f"note {turn % 50}", value="n" * 40))
    return log.events


class Way:
    """One way to keep checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0

    def put(self, name: str, data: bytes) -> None:
        write_atomically(REAL_ENV, str(self.folder / name), data)
        self.written += len(data)


class Full(Way):
    """The whole state each time."""

    deletable = "every older one"

    def save(self, number: int, state: State, suffix: list[Any]) -> None:
        self.put(f"{number}", state_bytes(state))
        self.last = number

    def restore(self) -> State:
        return state_from(read_file(REAL_ENV, str(self.folder / f"{self.last}")))


class Chain(Way):
    """The first state, then the events since the one before: a chain that must be folded in full."""

    deletable = "none before the next full one"

    def save(self, number: int, state: State, suffix: list[Any]) -> None:
        if number == 0:
            self.put("base", state_bytes(state))
            self.suffixes: list[list[Any]] = []
            return
        self.put(f"{number}", b"".join(event.payload for event in suffix))
        self.suffixes.append(suffix)

    def restore(self) -> State:
        state = state_from(read_file(REAL_ENV, str(self.folder / "base")))
        for number, suffix in enumerate(self.suffixes, 1):
            read_file(REAL_ENV, str(self.folder / f"{number}"))
            state = fold(state, suffix)
        return state


class Parts(Way):
    """Ours: parts by their hash, one root each."""

    deletable = "every older one"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.blobs = BlobStore(REAL_ENV, str(folder / "blobs"))
        self.before: Any = None

    def save(self, number: int, state: State, suffix: list[Any]) -> None:
        done = save(self.blobs, state, None, None, self.before)
        self.before, self.root = done.manifest, done.root
        self.written += done.bytes_written

    def restore(self) -> State:
        return load(self.blobs, "default", self.root).state


def measured(make: Callable[[Path], Any], turns: int) -> dict[str, float]:
    events = story(turns)
    each = max(1, turns // min(CHECKPOINTS, turns))
    per_turn = (len(events) - 1) // turns
    cuts = [1 + per_turn * turn for turn in range(each, turns + 1, each)]
    with tempfile.TemporaryDirectory() as folder:
        way = make(Path(folder))
        folder_state, done, pauses = Folder(initial("default", "run-1")), 0, []
        for number, cut in enumerate(cuts):
            suffix = events[done:cut]
            folder_state.extend(suffix)
            state, done = folder_state.state(), cut
            began = time.perf_counter()
            way.save(number, state, suffix)
            pauses.append(time.perf_counter() - began)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            restored = way.restore()
            times.append(time.perf_counter() - began)
        assert state_bytes(restored) == state_bytes(state)
        new = sum(map(len, parts(state).values()))
        return {
            "pause_ms": statistics.median(pauses[-5:]) * 1000, "written_mib": way.written / 2**20,
            "per_new_byte": way.written / new, "restore_ms": min(times) * 1000,
        }  # fmt: skip


def rows() -> Iterator[Row]:
    """Yield the table. No bar but that ours writes less than full snapshots at 1,000 turns."""
    written: dict[tuple[str, int], float] = {}
    for turns in TURNS:
        for name, make in (("full", Full), ("chained-delta", Chain), ("content-addressed", Parts)):
            found = measured(make, turns)
            written[name, turns] = found["written_mib"]
            note = f"deletable: {make.deletable}"  # type: ignore[attr-defined]
            for what, value in found.items():
                unit = "x" if what == "per_new_byte" else what.rpartition("_")[2]
                yield Row(f"{name} {turns} turns {what}", value, unit=unit, note=note)
    ours, full = written["content-addressed", 1000], written["full", 1000]
    yield Row("content-addressed / full bytes at 1,000 turns", ours / full, 0.25, "at most", note="all bytes written")
