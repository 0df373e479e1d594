"""tau-bench result files: one JSON array of runs {task_id, trial, reward, info, traj}.

One trajectory per (task_id, trial) of a file. The reward and the run's `info` are kept raw under the kind
`reward`: they are a judgement, and `trajlake import rewards` makes one of them. The record is written when the
episode is over, so it ends the trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource

from ..sources import Source
from .build import Trajectory, first_record_hash, label, session_id
from .contract import Item, Loss, ReadOptions
from .documents import Document, first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import feed

NAME: Final = "tau-bench"


class TauBench:
    """The importer `tau-bench`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return 95 if {"task_id", "traj", "reward"} <= set(value) else 0
        start = head[:8192]
        return 90 if b'"task_id"' in start and b'"reward"' in start and b'"traj"' in head else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        ready: list[Item] = []
        used: dict[str, int] = {}
        found = False
        for record in read_records(source, loss):
            parts = raw_members(record.raw) or {}
            if "traj" not in parts or "task_id" not in parts:
                if not found:
                    raise refuse(source, "holds no tau-bench run (task_id, traj, reward)")
                loss.skip("no run")
                loss.problem(record.place, "is no tau-bench run; left out")
                continue
            found = True
            _read_run(source, record, parts, used, ready, loss)
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "holds no tau-bench run")


def _read_run(
    source: Source,
    record: Document,
    parts: dict[str, msgspec.Raw],
    used: dict[str, int],
    ready: list[Item],
    loss: Loss,
) -> None:
    session = f"{safe_stem(source)}/{label(_value(parts, 'task_id'))}-{label(_value(parts, 'trial') or 0)}"
    used[session] = used.get(session, 0) + 1
    if used[session] > 1:
        loss.note("task and trial repeated")
        session = f"{session}.{used[session]}"
    messages = raw_elements(parts["traj"]) or []
    trajectory = Trajectory(
        session_id(NAME, session, source.name, record.place),
        ImportSource(
            format=NAME,
            session=session,
            first_record_hash=first_record_hash(bytes(messages[0]) if messages else b""),
            producer=NAME,
        ),
        ready.append,
        loss,
        agent=NAME,
    )
    trajectory.place = record.place
    info = _value(parts, "info")
    task = info.get("task") if isinstance(info, dict) else None
    instruction = task.get("instruction") if isinstance(task, dict) else None
    trajectory.set_task({"task_id": _value(parts, "task_id"), "instruction": instruction})
    for index, raw in enumerate(messages):
        place = under(record.place, f"/traj/{index}")
        kind = feed(trajectory, raw, place=place)
        if kind:
            loss.map(kind)
        else:
            trajectory.keep("message", text_of(raw), place=place)
            loss.keep("message")
    trajectory.keep("reward", object_text(parts, without=("traj",)), place=record.place)
    loss.keep("reward")
    trajectory.end("completed", reason="the run was evaluated", place=record.place)
    trajectory.settle()


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None


IMPORTER: Final = TauBench()
