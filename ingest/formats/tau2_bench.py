"""tau2-bench results: one document {timestamp, info, tasks, simulations[]}, or one simulation of the split layout.

Two models talk: the agent, whose replies are this trajectory's, and a user simulator, whose messages are messages.
Both call tools. A call of the simulator is no proposal of the agent's: it is kept with its message, and its answer
is a tool message that the agent never saw. Usage is the agent's own; the simulator's is kept raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, Usage
from trajlake.schemas.events.life import EndStatus

from ..sources import Source
from .build import Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .chat_shapes import said_of
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import usage_of
from .prompts import PromptLog
from .usage import first_count, or_none

NAME: Final = "tau2-bench"
FORMAT: Final = "tau2.message/1"
COMPLETED: Final = frozenset({"user_stop", "agent_stop"})


class Tau2Bench:
    """The importer `tau2-bench`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, dict):
            simulated = isinstance(value.get("simulations"), list) and "tasks" in value
            return 96 if simulated or {"task_id", "termination_reason", "messages"} <= set(value) else 0
        start = head.lstrip()
        if not start.startswith(b"{"):
            return 0
        results = b'"environment_info"' in start or b'"user_info"' in start or b'"agent_info"' in start
        single = b'"termination_reason"' in start and b'"task_id"' in start and b'"messages"' in start
        return 90 if results or single else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        ready: list[Item] = []
        used: dict[str, int] = {}
        found = False
        for record in read_records(source, loss):
            outer = raw_members(record.raw) or {}
            many = raw_elements(outer["simulations"]) if "simulations" in outer else None
            if many is None and "messages" not in outer:
                break
            found = True
            shared = _Shared(source, outer if many is not None else {}, used)
            simulations = many if many is not None else [record.raw]
            for index, raw in enumerate(simulations):
                place = under(record.place, f"/simulations/{index}") if many is not None else record.place
                try:
                    _Simulation(shared, loss, ready, raw, place).read()
                except BadSource as error:
                    loss.skip("hostile id")
                    loss.problem(place or "whole file", str(error))
                yield from ready
                ready.clear()
        if not found:
            raise refuse(source, "holds no tau2-bench simulations")


class _Shared:
    """What all simulations of one file have in common."""

    def __init__(self, source: Source, outer: dict[str, msgspec.Raw], used: dict[str, int]) -> None:
        self.source = source
        self.used = used
        self.around = object_text(outer, without=("simulations", "tasks")) if outer else ""
        info = value_of(outer["info"]) if "info" in outer else {}
        agent = info.get("agent_info") if isinstance(info, dict) else None
        self.model = label(agent.get("llm")) if isinstance(agent, dict) else ""
        self.sampling = agent.get("llm_args") if isinstance(agent, dict) else None
        tasks = raw_elements(outer["tasks"]) if "tasks" in outer else None
        self.tasks = {str(value_of(raw).get("id")): raw for raw in tasks or [] if isinstance(value_of(raw), dict)}


class _Simulation:
    def __init__(self, shared: _Shared, loss: Loss, ready: list[Item], raw: msgspec.Raw, place: str) -> None:
        self.loss, self.shared = loss, shared
        self.parts = raw_members(raw) or {}
        self.place = place or "whole file"
        self.base = place
        self.messages = raw_elements(self.parts["messages"]) if "messages" in self.parts else None
        session = label(self._value("id")) or self._unnamed()
        self.trajectory = Trajectory(
            session_id(NAME, session, shared.source.name, place),
            ImportSource(
                format=NAME,
                session=session,
                first_record_hash=first_record_hash(bytes(self.messages[0]) if self.messages else b""),
                producer=NAME,
            ),
            ready.append,
            loss,
            agent=NAME,
        )
        self.trajectory.place = self.place
        self.trajectory.model = shared.model
        if shared.sampling:
            self.trajectory.sampling = record_tree(shared.sampling)
        self.log = PromptLog(self.trajectory)

    def _value(self, key: str) -> Any:
        return value_of(self.parts[key]) if key in self.parts else None

    def _unnamed(self) -> str:
        session = f"{safe_stem(self.shared.source)}/{label(self._value('task_id'))}-{label(self._value('trial') or 0)}"
        self.shared.used[session] = self.shared.used.get(session, 0) + 1
        return session if self.shared.used[session] == 1 else f"{session}.{self.shared.used[session]}"

    def read(self) -> None:
        """Feed the whole simulation."""
        task = self.shared.tasks.get(str(self._value("task_id")))
        self.trajectory.set_task({"task_id": self._value("task_id")})
        policy = self._value("policy")
        if isinstance(policy, str):
            self.trajectory.set_head("system", policy)
        if task is not None:
            self.trajectory.keep("task", text_of(task), place="/tasks")
            self.loss.keep("task")
        for index, raw in enumerate(self.messages or []):
            self._message(raw, under(self.base, f"/messages/{index}"))
        kind = "reward" if "reward_info" in self.parts else "simulation"
        self.trajectory.keep(kind, object_text(self.parts, without=("messages", "policy")), place=self.place)
        self.loss.keep(kind)
        if self.shared.around:
            self.trajectory.keep("results", self.shared.around, place="whole file")
            self.loss.keep("results")
            self.shared.around = ""
        reason = self._value("termination_reason")
        if reason is not None:
            at = time_us(self._value("end_time"))
            self.trajectory.end(end_status(label(reason)), reason=label(reason), at=at, place=self.place)
        self.trajectory.settle()

    def _message(self, raw: msgspec.Raw, place: str) -> None:
        parts = raw_members(raw) or {}
        role = label(value_of(parts["role"])) if "role" in parts else ""
        nested = raw_elements(parts["tool_messages"]) if "tool_messages" in parts else None
        if nested is not None:
            for index, one in enumerate(nested):
                self._message(one, f"{place}/tool_messages/{index}")
            return
        found = said_of(raw)
        if not found:
            self.trajectory.keep("message", text_of(raw), place=place)
            self.loss.keep("message")
            return
        at = time_us(value_of(parts["timestamp"])) if "timestamp" in parts else None
        requestor = label(value_of(parts["requestor"])) if "requestor" in parts else "assistant"
        said = found[0]
        if role == "assistant":
            self._reply(raw, parts, at, place)
        elif role == "tool" and requestor == "user":
            self._unseen("tool", raw, at, place)
            self.loss.note("answer to a call of the user simulator")
        elif role == "tool":
            self.log.add(said, at, place)
        elif said.calls:
            self._unseen("user", raw, at, place)
            self.loss.note("calls of the user simulator", len(said.calls))
        else:
            self.log.add(said, at, place)
            if role == "user":
                self.trajectory.keep("user (details)", object_text(parts, without=("content",)), at=at, place=place)
        self.loss.map(f"{role} by user" if requestor == "user" or (role == "user" and said.calls) else role)

    def _unseen(self, role: str, raw: msgspec.Raw, at: int | None, place: str) -> None:
        """The agent sees what the simulator says, never what it calls or is answered: no item of the context."""
        self.trajectory.message(role, value_of(raw), at=at, place=place)
        self.trajectory.rewind(self.trajectory.context_length - 1)

    def _reply(self, raw: msgspec.Raw, parts: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        said = said_of(raw)[0]
        cost = value_of(parts["cost"]) if "cost" in parts else None
        raw_data = value_of(parts["raw_data"]) if "raw_data" in parts else None
        told = value_of(parts["usage"]) if "usage" in parts else None
        self.log.reply(
            said,
            text_of(raw),
            format=FORMAT,
            at=at,
            place=place,
            usage=message_usage(told),
            model=label(raw_data.get("model")) if isinstance(raw_data, dict) else self.shared.model,
            response_id=label(raw_data.get("id")) if isinstance(raw_data, dict) else "",
            cost={"usd": str(cost)} if isinstance(cost, (int, float)) and not isinstance(cost, bool) else {},
        )


def message_usage(told: Any) -> Usage | None:
    """Return a message's usage: `prompt_tokens` includes cached input."""
    usage = usage_of(told)
    if usage is None or not isinstance(told, dict):
        return usage
    return or_none(
        msgspec.structs.replace(
            usage, cached_read=usage.cached_read or first_count(told, "cached_tokens", "cache_read_input_tokens")
        )
    )


def end_status(reason: str) -> EndStatus:
    """Return how a simulation ended: somebody stopped it, or it was cut off."""
    return "completed" if reason in COMPLETED else "failed"


IMPORTER: Final = Tau2Bench()
