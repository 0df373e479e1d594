"""ATIF v1.0-v1.8 documents (Harbor, NeMo and others): {schema_version, agent, steps[], ...}.

An agent step is a reply; its observation holds the results of its calls, or, where the calls stand in the text
only, an observation of its own. Copied steps (continuations) are marked and stay out of totals. Sub-agents that
are embedded become trajectories below this one. Identity: `trajectory_id`, else the session id (which documents
of one run share) with the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, ParentAction, Usage

from ..sources import Source
from .anthropic_parts import count, text_or_value, wire_of
from .build import Call, Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of

NAME: Final = "atif"
FORMAT: Final = "atif.step/1"


class Atif:
    """The importer `atif`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, dict):
            told = str(value.get("schema_version", "")).startswith("ATIF")
            return 97 if told else 75 if {"steps", "agent"} <= set(value) and "session_id" in value else 0
        start = head[:4096]
        return 96 if b'"ATIF-v' in start else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        ready: list[Item] = []
        found = False
        for record in read_records(source, loss):
            parts = raw_members(record.raw)
            if parts is None or "steps" not in parts or raw_elements(parts["steps"]) is None:
                if not found:
                    raise refuse(source, "is no ATIF document (no steps)")
                loss.skip("no trajectory")
                loss.problem(record.place, "is no ATIF document; left out")
                continue
            found = True
            _Document(source, options, loss, ready).read(parts, record.place, None)
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "is no ATIF document")


class _Document:
    """One ATIF trajectory, with those embedded in it."""

    def __init__(self, source: Source, options: ReadOptions, loss: Loss, ready: list[Item]) -> None:
        self.source, self.options, self.loss, self.ready = source, options, loss, ready

    def read(self, parts: dict[str, msgspec.Raw], place: str, parent: Trajectory | None) -> None:
        """Feed the steps of one trajectory, then its sub-agents."""
        steps = raw_elements(parts["steps"]) or []
        agent = _value(parts, "agent")
        agent = agent if isinstance(agent, dict) else {}
        trajectory = self._open(parts, place, parent, steps, agent)
        if agent.get("tool_definitions"):
            trajectory.set_head("tools", agent["tool_definitions"])
        for number, raw in enumerate(steps):
            self._step(trajectory, raw, under(place, f"/steps/{number}"))
        rest = object_text(parts, without=("steps", "subagent_trajectories"))
        trajectory.keep("document", rest, place=place or WHOLE)
        self.loss.keep("document")
        trajectory.settle()
        for number, raw in enumerate(raw_elements(parts.get("subagent_trajectories", b"null")) or []):
            inner = raw_members(raw) or {}
            if raw_elements(inner.get("steps", b"null")) is not None:
                self.read(inner, under(place, f"/subagent_trajectories/{number}"), trajectory)

    def _open(
        self,
        parts: dict[str, msgspec.Raw],
        place: str,
        parent: Trajectory | None,
        steps: list[msgspec.Raw],
        agent: dict[str, Any],
    ) -> Trajectory:
        own, session = _value(parts, "trajectory_id"), _value(parts, "session_id")
        name = str(own) if isinstance(own, str) and own else f"{session or 'run'}/{safe_stem(self.source)}"
        if parent is not None:
            name = f"{parent.source.session}/{label(own) or 'sub-' + place.rpartition('/')[2]}"
        elif place and not own:
            name = f"{name}/{place.rpartition(' ')[2].strip('/')}"
        trajectory = Trajectory(
            session_id(NAME, name, self.source.name, place),
            ImportSource(
                format=NAME,
                session=name,
                first_record_hash=first_record_hash(bytes(steps[0]) if steps else b""),
                producer=label(agent.get("name")),
                producer_version=label(agent.get("version")),
            ),
            self.ready.append,
            self.loss,
            agent=label(agent.get("name")),
            parent=None
            if parent is None
            else ParentAction(tenant=self.options.tenant, trajectory_id=parent.trajectory_id),
        )
        trajectory.place = place or WHOLE
        trajectory.model = label(agent.get("model_name"))
        return trajectory

    def _step(self, trajectory: Trajectory, raw: msgspec.Raw, place: str) -> None:
        parts = raw_members(raw) or {}
        step = value_of(raw)
        if not isinstance(step, dict) or not isinstance(step.get("source"), str):
            trajectory.keep("step", text_of(raw), place=place)
            self.loss.keep("step")
            return
        at, role = time_us(step.get("timestamp")), step["source"]
        kind = f"step/{label(role)}"
        if step.get("is_copied_context") is True:
            trajectory.message("assistant" if role == "agent" else role, step, at=at, place=place, origin="copied")
            kind += "/copied"
        elif role == "agent" and step.get("llm_call_count") != 0:
            self._reply(trajectory, parts, step, at, place)
            self._observation(trajectory, step, at, place)
        else:
            if role == "user":
                trajectory.set_task(text_or_value(step.get("message")))
            trajectory.message(role, _without_observation(step), at=at, place=place)
            self._observation(trajectory, step, at, place)
        self.loss.map(kind)

    def _reply(
        self, trajectory: Trajectory, parts: dict[str, msgspec.Raw], step: dict[str, Any], at: int | None, place: str
    ) -> None:
        text = object_text(parts, without=("observation",) if _has_results(step) else ())
        wire, keep_wire = wire_of(msgspec.Raw(text.encode("utf-8", "surrogateescape")))
        metrics = step.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        cost = metrics.get("cost_usd")
        trajectory.reply(
            text,
            wire,
            format=FORMAT,
            calls=_calls(parts),
            at=at,
            place=place,
            keep_wire=keep_wire,
            usage=_usage(metrics),
            model=label(step.get("model_name")),
            cost={"usd": f"{cost:.12f}".rstrip("0").rstrip(".")} if isinstance(cost, (int, float)) and cost else {},
            token_ids=record_tree(metrics.get("completion_token_ids")),
            logprobs=record_tree(metrics.get("logprobs")),
        )

    def _observation(self, trajectory: Trajectory, step: dict[str, Any], at: int | None, place: str) -> None:
        observation = step.get("observation")
        results = observation.get("results") if isinstance(observation, dict) else None
        for number, result in enumerate(results if isinstance(results, list) else []):
            if not isinstance(result, dict):
                continue
            where = f"{place}/observation/results/{number}"
            content = result.get("content")
            named = result.get("source_call_id")
            if named is None and trajectory.find_call("") is None:
                self.loss.note("observation that names no call")
                trajectory.message("observation", result, at=at, place=where)
                continue
            output = text_or_value(content)
            plain = set(result) == {"source_call_id", "content"} and isinstance(content, str) and isinstance(named, str)
            trajectory.result(label(named), output, result, at=at, place=where, keep_wire=not plain)


def _calls(parts: dict[str, msgspec.Raw]) -> list[Call]:
    calls = []
    for raw in raw_elements(parts.get("tool_calls", b"null")) or []:
        members = raw_members(raw) or {}
        arguments = text_of(members["arguments"]) if "arguments" in members else None
        name, identity = _value(members, "function_name"), _value(members, "tool_call_id")
        calls.append(Call(label(name), label(identity), arguments))
    return calls


def _usage(metrics: dict[str, Any]) -> Usage | None:
    extra = metrics.get("extra")
    details = extra.get("completion_tokens_details") if isinstance(extra, dict) else None
    written = count(extra.get("cache_creation_input_tokens")) if isinstance(extra, dict) else None
    usage = Usage(
        input_total=count(metrics.get("prompt_tokens")),
        cached_read=count(metrics.get("cached_tokens")),
        cache_write=written,
        output=count(metrics.get("completion_tokens")),
        reasoning=count(details.get("reasoning_tokens")) if isinstance(details, dict) else None,
    )
    return None if usage == Usage() else usage


def _without_observation(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "observation"} if _has_results(step) else step


def _has_results(step: dict[str, Any]) -> bool:
    """Return whether a step's observation is results and nothing else; any other stays in the step, word for word."""
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) and set(observation) == {"results"} else None
    return isinstance(results, list) and bool(results) and all(isinstance(result, dict) for result in results)


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None


IMPORTER: Final = Atif()
