"""The events of an Inspect sample become those of its trajectories.

Model events are replies, shown the prompt that they name; tool events are results, told as the model was told;
approvals, compactions and limits have events of their own. Calls of a scorer's model open no turn. An agent that
another agent started is a trajectory of its own below the sample's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, ParentAction, Usage

from .build import Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .chat_shapes import Said, canonical_arguments, said_all, said_of
from .contract import BadSource, Item, Loss
from .inspect_sample import NO_RAW, Sample
from .json_text import NotJson, object_text, raw_elements, raw_members, text_of, value_of
from .prompts import Pooled, PromptLog
from .usage import exclusive_usage, first_count

NAME: Final = "inspect"
FORMAT: Final = "inspect.output/1"
CALL_FORMAT: Final = "inspect.call/1"
REPEATS: Final = ("input", "input_refs", "tools", "output", "call", "config")
"""What a model event says that becomes events: the rest is kept beside the reply."""
TOOL_REPEATS: Final = ("result", "view", "events")
SCORING: Final = frozenset({"scorer", "scorers"})


class SampleRun:
    """All trajectories of one sample. `event` once for each event, then `finish`."""

    def __init__(
        self, sample: Sample, session: str, source_name: str, tenant: str, model: str, emit: Callable[[Item], None],
        loss: Loss,
    ) -> None:  # fmt: skip
        self.sample, self.session, self.tenant, self.loss = sample, session, tenant, loss
        self.source_name, self.emit, self.model = source_name, emit, model
        self.spans: dict[str, tuple[str, str]] = {}
        """Span id -> (its parent, its type)."""
        self.steps: list[str] = []
        self.agents: dict[str, _Agent] = {}
        self.spawned: dict[str, str] = {}
        self.main = self._agent("")
        self.main.trajectory.place = sample.place
        task = sample.value("input")
        if isinstance(task, list):
            found = said_all(raw_elements(sample.full(sample.shell["input"])) or [])
            task = next((said.text for said in found if said.role == "user"), None)
        self.main.trajectory.set_task(task)

    def event(self, raw: msgspec.Raw, place: str, owner: str | None = None) -> None:
        """Feed one event of the sample; `owner` is the trajectory it belongs to where its place says so."""
        try:
            parts = raw_members(raw) or {}
            kind = label(_value(parts, "event")) or "event"
            at = time_us(_value(parts, "timestamp"))
            self._structure(kind, parts)
            name = self._owner(label(_value(parts, "span_id"))) if owner is None else owner
            agent = self.agents.get(name) or self._agent(name)
            nested = raw_elements(parts.get("events", NO_RAW)) or []
            if nested:
                raw = msgspec.Raw(object_text(parts, without=("events",)).encode("utf-8", "surrogateescape"))
            mapped = agent.event(kind, parts, raw, at, place, purpose="score" if self._scoring(parts) else "act")
        except (NotJson, BadSource) as error:
            self.loss.problem(place, f"cannot be read ({error}); kept as text")
            kind, at, agent, nested, mapped = "unreadable event", None, self.main, [], False
        if mapped:
            self.loss.map(kind)
        else:
            agent.trajectory.keep(kind, text_of(raw), at=at, place=place)
            self.loss.keep(kind)
        self._nested(nested, kind, parts if nested else {}, place)

    def _nested(self, events: list[msgspec.Raw], kind: str, parts: dict[str, msgspec.Raw], place: str) -> None:
        """Older logs put what happened inside a tool or subtask inside its event: a trajectory of its own."""
        if not events:
            return
        name = f"{kind}-{label(_value(parts, 'id')) or label(_value(parts, 'name'))}"
        while name in self.agents:
            name += "+"
        for number, raw in enumerate(events):
            self.event(raw, f"{place}/events/{number}", name)

    def finish(self) -> None:
        """Keep what stands around the events, and end."""
        self._conversation()
        trajectory, sample = self.main.trajectory, self.sample
        at = time_us(sample.value("completed_at"))
        if metadata := sample.metadata():
            trajectory.keep("sample metadata", metadata, at=at, place=sample.place)
            self.loss.keep("sample metadata")
        trajectory.keep("reward" if sample.value("scores") else "sample", sample.rest(), at=at, place=sample.place)
        self.loss.keep("sample")
        if sample.call_pool_size:
            self.loss.note("requests in the call pool repeat prompts: not stored", sample.call_pool_size)
        if sample.derived:
            self.loss.skip("derived index", sample.derived)
        error, limit = sample.value("error"), sample.value("limit")
        reason = label(error.get("message")) if isinstance(error, dict) else ""
        if not reason and isinstance(limit, dict):
            reason = f"limit: {label(limit.get('type'))}"
        trajectory.end("failed" if error else "completed", reason=reason, at=at, place=sample.place)
        for agent in self.agents.values():
            agent.trajectory.settle()

    def _conversation(self) -> None:
        """Add what the final conversation says and no event showed; without model events it is all there is."""
        messages = self.sample.messages()
        if self.main.log.trajectory.replies or any(agent.trajectory.replies for agent in self.agents.values()):
            shown = [said for raw in messages for said in said_of(raw)]
            if any(not self.main.log.holds(said.key) for said in shown):
                self.main.log.show(shown, None, f"{self.sample.place} /messages")
            return
        output = raw_members(self.sample.full(self.sample.shell.get("output", NO_RAW))) or {}
        last = max(
            (n for n, raw in enumerate(messages) if _value(raw_members(raw) or {}, "role") == "assistant"), default=-1
        )
        for number, raw in enumerate(messages):
            place = f"{self.sample.place} /messages/{number}"
            for said in said_of(raw):
                if said.role == "assistant":
                    usage = usage_of(_value(output, "usage")) if number == last else None
                    self.main.log.reply(said, text_of(raw), format=FORMAT, at=None, place=place, usage=usage,
                                        model=label(_value(output, "model")) or self.model)  # fmt: skip
                else:
                    self.main.log.add(said, None, place)
                self.loss.map(f"message {said.role}")

    # -- whose event it is

    def _structure(self, kind: str, parts: dict[str, msgspec.Raw]) -> None:
        if kind == "span_begin":
            parent = label(_value(parts, "parent_id"))
            self.spans[label(_value(parts, "id"))] = (parent, label(_value(parts, "type")))
        elif kind == "step":
            begins = _value(parts, "action") == "begin"
            if begins:
                self.steps.append(label(_value(parts, "type")))
            elif self.steps:
                self.steps.pop()
        elif kind == "tool" and "agent_span_id" in parts:
            call = self.main.trajectory.find_call(label(_value(parts, "id")))
            if call is not None:
                self.spawned[label(_value(parts, "agent_span_id"))] = call.action

    def _scoring(self, parts: dict[str, msgspec.Raw]) -> bool:
        span, hops = label(_value(parts, "span_id")), 0
        while span in self.spans and hops < 1_000:
            parent, kind = self.spans[span]
            if kind in SCORING:
                return True
            span, hops = parent, hops + 1
        return any(step in SCORING for step in self.steps)

    def _owner(self, span: str) -> str:
        """Return the agent span whose trajectory an event belongs to; "" for the sample's own agent."""
        agents: list[str] = []
        hops = 0
        while span in self.spans and hops < 1_000:
            parent, kind = self.spans[span]
            if kind == "agent":
                agents.append(span)
            span, hops = parent, hops + 1
        return agents[0] if len(agents) > 1 else ""

    def _agent(self, span: str) -> _Agent:
        session = f"{self.session}/agent-{span}" if span else self.session
        parent = None
        if span:
            parent = ParentAction(
                tenant=self.tenant,
                trajectory_id=f"{NAME}/{self.session}",
                action_id=self.spawned.get(span, ""),
            )
        trajectory = Trajectory(
            session_id(NAME, session, self.source_name, self.sample.place),
            ImportSource(
                format=NAME,
                session=session,
                first_record_hash=first_record_hash(session.encode("utf-8", "surrogatepass")),
                producer="inspect_ai",
            ),
            self.emit,
            self.loss,
            agent=NAME,
            parent=parent,
        )
        trajectory.place = self.sample.place
        trajectory.model = self.model
        agent = self.agents[span] = _Agent(trajectory, self.sample, self.loss)
        return agent


class _Agent:
    """One trajectory of a sample."""

    def __init__(self, trajectory: Trajectory, sample: Sample, loss: Loss) -> None:
        self.trajectory, self.sample, self.loss = trajectory, sample, loss
        self.log = PromptLog(trajectory)

    def event(
        self, kind: str, parts: dict[str, msgspec.Raw], raw: msgspec.Raw, at: int | None, place: str, *, purpose: str
    ) -> bool:
        """Feed one event; return whether it became one of ours (else the caller keeps it)."""
        if kind == "model":
            return self._model(parts, at, place, purpose)
        if kind == "tool":
            return self._tool(parts, at, place)
        if kind == "approval":
            return self._approval(parts, raw, at, place)
        if kind == "compaction":
            trigger = "/".join(part for part in (label(_value(parts, "type")), label(_value(parts, "source"))) if part)
            before, after = _value(parts, "tokens_before"), _value(parts, "tokens_after")
            self.log.compacted(
                None, 0, at, place, trigger=trigger,
                tokens_before=before if isinstance(before, int) else None,
                tokens_after=after if isinstance(after, int) else None,
            )  # fmt: skip
            return True
        return False

    def _model(self, parts: dict[str, msgspec.Raw], at: int | None, place: str, purpose: str) -> bool:
        output = raw_members(parts.get("output", NO_RAW)) or {}
        if _value(parts, "pending") is True:
            return False
        if _value(parts, "tools"):
            self.trajectory.set_head("tools", _value(parts, "tools"))
        if config := _value(parts, "config"):
            self.trajectory.set_head("parameters", config)
            if self.trajectory.sampling is None and not self.trajectory.settled:
                self.trajectory.sampling = record_tree(config)
        self._show(parts, at, place)
        said, reason = _choice(output)
        call = raw_members(parts.get("call", NO_RAW)) or {}
        response = call.get("response")
        raw = parts.get("output", NO_RAW) if response is None or bytes(response) == b"null" else response
        error = _value(parts, "error") or _value(output, "error")
        done = time_us(_value(parts, "completed"))
        spent = _value(parts, "working_time")
        self.log.reply(
            said,
            text_of(raw),
            format=FORMAT if response is None else CALL_FORMAT,
            at=done if done is not None else at,
            place=place,
            usage=usage_of(_value(output, "usage")),
            model=label(_value(output, "model")) or label(_value(parts, "model")),
            stop_reason=None if reason is None else label(reason),
            duration_ms=spent * 1000 if isinstance(spent, (int, float)) else None,
            status="error" if error else "kept",
            error=label(error),
            purpose=purpose,
        )
        if "request" in call:
            self.loss.note("requests repeat prompt, tools and parameters: not stored")
        details = object_text(parts, without=REPEATS)
        self.trajectory.keep("model (details)", details, at=at, place=place)
        told = {"choices", "completion", "usage", "model", "error"}
        if response is not None and set(output) - told - {"time"}:
            self.trajectory.keep("model output (details)", object_text(output, without=told), at=at, place=place)
        return True

    def _show(self, parts: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        prompt: list[Said | Pooled] = []
        if "input_refs" in parts and (refs := _value(parts, "input_refs")):
            pooled = self.sample.pooled(refs)
            if pooled is None:
                self._show_final(refs, at, place)
                return
            prompt += pooled
        for raw in raw_elements(parts.get("input", NO_RAW)) or []:
            prompt += said_of(raw)
        self.log.show(prompt, at, place)

    def _show_final(self, refs: Any, at: int | None, place: str) -> None:
        """The pool is missing (some writers lose it): the final conversation stands in for it, as far as it goes."""
        self.loss.note("message pool is missing: prompt taken from the final conversation")
        messages = self.sample.messages()
        end = max((pair[1] for pair in refs if isinstance(pair, list) and len(pair) == 2), default=0)
        self.log.show([said for raw in messages[:end] for said in said_of(raw)], at, place)

    def _tool(self, parts: dict[str, msgspec.Raw], at: int | None, place: str) -> bool:
        call_id = label(_value(parts, "id"))
        call = self.trajectory.find_call(call_id)
        done = time_us(_value(parts, "completed"))
        if call is None or _value(parts, "pending") is True:
            return False
        error = _value(parts, "error")
        said = self.sample.tool_message(label(_value(parts, "message_id")))
        if said is None or said.call_id != call_id:
            output = _result_of(parts, error)
            wire = {"role": "tool", "tool_call_id": call_id, "content": output}
            said = Said("tool", wire, None, (), call_id, output, bool(error))
        spent = _value(parts, "working_time")
        refused = isinstance(error, dict) and error.get("type") == "approval"
        self.log.answer(
            said,
            done if done is not None else at,
            place,
            call=call,
            status="refused" if refused else "error" if error else "ok",
            error=error or None,
            duration_ms=spent * 1000 if isinstance(spent, (int, float)) else None,
        )
        skipped = list(TOOL_REPEATS)
        arguments = text_of(parts["arguments"]) if "arguments" in parts else None
        if canonical_arguments(arguments) == canonical_arguments(call.arguments):
            skipped.append("arguments")
        result = _value(parts, "result")
        if result not in (said.output, "", None):
            skipped.remove("result")
        self.trajectory.keep("tool (details)", object_text(parts, without=skipped), at=at, place=place)
        return True

    def _approval(self, parts: dict[str, msgspec.Raw], raw: msgspec.Raw, at: int | None, place: str) -> bool:
        told = raw_members(parts.get("call", NO_RAW)) or {}
        call = self.trajectory.find_call(label(_value(told, "id")))
        decision = _value(parts, "decision")
        if call is None or not isinstance(decision, str):
            return False
        approver, why = label(_value(parts, "approver")), label(_value(parts, "explanation"))
        if decision == "escalate":
            self.trajectory.ask(call, question=f"escalated by {approver}: {why}", at=at, place=place)
        else:
            granted = decision in ("approve", "modify")
            self.trajectory.approval(call, granted, approver=approver or "unknown", because=why, at=at, place=place)
        if decision not in ("approve", "reject"):
            self.trajectory.keep(f"approval ({decision})", text_of(raw), at=at, place=place)
        return True


def usage_of(told: Any) -> Usage | None:
    """Return Inspect's usage: `input_tokens` excludes cached input."""
    if not isinstance(told, dict):
        return None
    return exclusive_usage(
        first_count(told, "input_tokens"),
        first_count(told, "input_tokens_cache_read"),
        first_count(told, "input_tokens_cache_write"),
        first_count(told, "output_tokens"),
        first_count(told, "reasoning_tokens"),
    )


def _choice(output: dict[str, msgspec.Raw]) -> tuple[Said, Any]:
    choices = raw_elements(output.get("choices", NO_RAW)) or []
    choice = (raw_members(choices[0]) if choices else None) or {}
    found = said_of(choice["message"]) if "message" in choice else []
    said = found[0] if found else Said("assistant", {"role": "assistant", "content": None})
    return said, _value(choice, "stop_reason")


def _result_of(parts: dict[str, msgspec.Raw], error: Any) -> Any:
    if isinstance(error, dict) and error.get("message") and not _value(parts, "result"):
        return error["message"]
    found = said_of(msgspec.Raw(b'{"role":"tool","content":' + (bytes(parts.get("result", NO_RAW)) or b"null") + b"}"))
    return found[0].output if found else None


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None
