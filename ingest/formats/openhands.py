"""OpenHands event lists: V0 (`action` / `observation`) and V1 of the SDK (`kind`, see `openhands_v1.py`).

A V0 action that came out of a native call carries the whole completion; that is the reply's `raw`, once, however
many actions came out of it. An action without one is the reply and its one call. Sources: a JSON list, JSON lines
of V1 events, an evaluation's `output.jsonl` with a `history` in each line, a folder with one file for each V1 event,
for which its last file stands (so that a folder that grows gives its tail).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, Usage

from ..sources import Source
from .build import Call, Trajectory, first_record_hash, label, session_id, time_us
from .chat_shapes import Said, said_of
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import Document, first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import usage_of
from .openhands_v1 import event_files, read_event_files, read_v1
from .prompts import PromptLog
from .usage import first_count

NAME: Final = "openhands"
CHAT: Final = "openai.chat/1"
ACTION: Final = "openhands.action/1"
SILENT: Final = frozenset({"change_agent_state", "recall", "null", "pause", "resume", "system", "condensation_request"})
"""Actions of the controller: no step of the agent."""
STATES: Final = frozenset({"agent_state_changed", "null", "recall", "agent_thought_success"})


class OpenHands:
    """The importer `openhands`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return _certainty(value)
        start = head[:65_536]
        if b'"kind"' in start and b'Event"' in start and b'"source"' in start and b'"timestamp"' in start:
            return 90
        is_v0 = b'"source"' in start and (b'"action"' in start or b'"observation"' in start) and b'"args"' in start
        has_run = b'"history"' in start and b'"git_patch"' in start
        return 90 if is_v0 or has_run else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        ready: list[Item] = []
        files = event_files(source)
        if files and not os.path.samefile(files[-1], source.path):
            loss.skip("event file (read with the last of its folder)")
            return
        records = read_event_files(files, loss) if files else read_records(source, loss)
        first = next(records, None)
        parts = (raw_members(first.raw) if first else None) or {}
        if first is not None and "history" in parts:
            yield from _read_runs(source, first, records, ready, loss)
        elif first is not None and "kind" in parts:
            yield from read_v1(source, first, records, options, loss)
        elif first is not None and ("action" in parts or "observation" in parts):
            run = _Run(source, loss, ready, _session(safe_stem(source), bytes(first.raw)), bytes(first.raw))
            run.event(first.raw, first.place)
            for record in records:
                run.event(record.raw, record.place)
                yield from _drain(ready)
            run.finish(None, "")
            yield from _drain(ready)
        else:
            raise refuse(source, "holds no OpenHands events")


def _certainty(value: dict[str, Any]) -> int:
    if "kind" in value and "source" in value and "timestamp" in value and "id" in value:
        return 92
    if ("action" in value or "observation" in value) and ("args" in value or "source" in value or "cause" in value):
        return 92
    has_run = isinstance(value.get("history"), list) and ("git_patch" in value or "metrics" in value)
    return 92 if has_run or ("instance_id" in value and "test_result" in value and "history" in value) else 0


def _drain(ready: list[Item]) -> Iterator[Item]:
    yield from ready
    ready.clear()


def _read_runs(
    source: Source, first: Document, records: Iterator[Document], ready: list[Item], loss: Loss
) -> Iterator[Item]:
    for record in (first, *records):
        parts = raw_members(record.raw) or {}
        history = raw_elements(parts["history"]) if "history" in parts else None
        if history is None:
            loss.skip("no run")
            loss.problem(record.place, "holds no history; left out")
            continue
        try:
            run = _Run(source, loss, ready, *_identity(source, parts, history))
        except BadSource as error:
            loss.skip("hostile id")
            loss.problem(record.place, str(error))
            continue
        run.task(parts)
        for index, raw in enumerate(history):
            place = under(record.place, f"/history/{index}")
            pair = raw_elements(raw)
            for one in [raw] if pair is None else pair:
                run.event(one, place)
        run.finish(parts, record.place)
        yield from _drain(ready)


def _identity(source: Source, parts: dict[str, msgspec.Raw], history: list[msgspec.Raw]) -> tuple[str, bytes]:
    opening = b"\n".join(bytes(raw) for raw in history[:2])
    given = value_of(parts["instance_id"]) if "instance_id" in parts else None
    if not isinstance(given, str) and "issue" in parts:
        issue = value_of(parts["issue"])
        if isinstance(issue, dict):
            given = "-".join(str(issue.get(key)) for key in ("owner", "repo", "number"))
    stem = given if isinstance(given, str) else safe_stem(source)
    return _session(stem, opening), opening


def _session(stem: str, opening: bytes) -> str:
    return f"{stem}-{sha256(opening).hexdigest()[:12]}"


class _Run:
    """One V0 conversation."""

    def __init__(self, source: Source, loss: Loss, ready: list[Item], session: str, opening: bytes) -> None:
        self.loss = loss
        self.trajectory = Trajectory(
            session_id(NAME, session, source.name, ""),
            ImportSource(format=NAME, session=session, first_record_hash=first_record_hash(opening), producer=NAME),
            ready.append,
            loss,
            agent=NAME,
        )
        self.log = PromptLog(self.trajectory)
        self.seen_responses: set[str] = set()
        self.messages = 0
        self.last_arguments: dict[str, msgspec.Raw] = {}

    def task(self, parts: dict[str, msgspec.Raw]) -> None:
        """Take task and model from what stands around a history."""
        if "instruction" in parts:
            self.trajectory.set_task(value_of(parts["instruction"]))
        metadata = value_of(parts["metadata"]) if "metadata" in parts else None
        config = metadata.get("llm_config") if isinstance(metadata, dict) else None
        if isinstance(config, dict):
            self.trajectory.model = label(config.get("model"))

    def event(self, raw: msgspec.Raw, place: str) -> None:
        """Feed one event."""
        parts = raw_members(raw)
        self.trajectory.place = self.trajectory.place or place
        if parts is None or not ({"action", "observation"} & set(parts)):
            self._keep("event", raw, None, place)
            return
        at = time_us(value_of(parts["timestamp"])) if "timestamp" in parts else None
        if "observation" in parts:
            self._observation(label(value_of(parts["observation"])), parts, raw, at, place)
        else:
            self._action(label(value_of(parts["action"])), parts, raw, at, place)

    # -- actions

    def _action(self, kind: str, parts: dict[str, msgspec.Raw], raw: msgspec.Raw, at: int | None, place: str) -> None:
        flat = "args" not in parts
        arguments = parts if flat else raw_members(parts["args"]) or {}
        source = value_of(parts["source"]) if "source" in parts else None
        if "tool_call_metadata" in parts and (told := raw_members(parts["tool_call_metadata"])):
            self._completion(told, at, place)
            self._details(f"action {kind}", parts, at, place)
        elif kind == "message":
            self._message(arguments, source, raw, at, place)
            if source != "agent":
                self._keep_rest("action message", parts, ("args", "content", "message"), at, place)
        elif kind == "system" and "content" in arguments:
            self._system(arguments, at, place)
        elif kind == "condensation":
            self._condensed(arguments, at, place)
        elif kind in SILENT or source in ("user", "environment"):
            self._keep(f"action {kind}", raw, at, place)
            return
        else:
            self._bare_action(kind, parts, arguments, flat, raw, at, place)
        self.last_arguments = arguments
        self.loss.map(f"action {kind}")

    def _completion(self, told: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        response = told.get("model_response")
        value = value_of(response) if response is not None else None
        if response is None or not isinstance(value, dict):
            name = label(value_of(told["function_name"])) if "function_name" in told else ""
            call_id = label(value_of(told["tool_call_id"])) if "tool_call_id" in told else ""
            said = Said("assistant", {"role": "assistant", "content": None}, calls=(Call(name, call_id, None),))
            self.log.reply(said, "", format=ACTION, at=at, place=place)
            return
        response_id = label(value.get("id"))
        if response_id and response_id in self.seen_responses:
            return
        self.seen_responses.add(response_id)
        choices = raw_elements((raw_members(response) or {}).get("choices", msgspec.Raw(b"[]"))) or []
        choice = (raw_members(choices[0]) if choices else None) or {}
        found = said_of(choice["message"]) if "message" in choice else []
        said = found[0] if found else Said("assistant", {"role": "assistant", "content": None})
        calls = tuple(
            call._replace(pointer=f"/choices/0/message/tool_calls/{index}/function/arguments")
            for index, call in enumerate(said.calls)
        )
        reason = value_of(choice["finish_reason"]) if "finish_reason" in choice else None
        self.log.reply(
            said._replace(calls=calls),
            text_of(response),
            format=CHAT,
            at=at,
            place=under(place, "/tool_call_metadata/model_response"),
            usage=completion_usage(value.get("usage")),
            model=label(value.get("model")),
            stop_reason=label(reason) if reason is not None else None,
            response_id=response_id,
        )

    def _message(
        self, arguments: dict[str, msgspec.Raw], source: Any, raw: msgspec.Raw, at: int | None, place: str
    ) -> None:
        text = value_of(arguments["content"]) if "content" in arguments else None
        waits = "wait_for_response" in arguments and value_of(arguments["wait_for_response"]) is True
        self.messages += 1
        if source is None:
            source = "agent" if waits and self.messages > 1 else "user"
            self.loss.note("message without a source: by its place and whether it waits")
        if source == "agent":
            said = Said("assistant", {"role": "assistant", "content": text}, text)
            self.log.reply(said, text_of(raw), format=ACTION, at=at, place=place)
            return
        images = value_of(arguments["image_urls"]) if "image_urls" in arguments else None
        content: Any = text
        if isinstance(images, list) and images:
            content = [{"type": "text", "text": text}]
            content += [{"type": "image_url", "image_url": {"url": url}} for url in images]
        self.log.add(Said("user", {"role": "user", "content": content}, text), at, place)

    def _system(self, arguments: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        text = value_of(arguments["content"])
        if "tools" in arguments and value_of(arguments["tools"]):
            self.trajectory.set_head("tools", value_of(arguments["tools"]))
        self.log.add(Said("system", {"role": "system", "content": text}, text), at, place)

    def _condensed(self, arguments: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        summary = value_of(arguments["summary"]) if "summary" in arguments else None
        self.log.compacted(summary if isinstance(summary, str) else None, 0, at, place, trigger="condensation")
        self._details("action condensation", arguments, at, place)

    def _bare_action(
        self,
        kind: str,
        parts: dict[str, msgspec.Raw],
        arguments: dict[str, msgspec.Raw],
        flat: bool,
        raw: msgspec.Raw,
        at: int | None,
        place: str,
    ) -> None:
        thought = value_of(arguments["thought"]) if "thought" in arguments else None
        text = object_text(parts, without=("action", "thought")) if flat else text_of(parts["args"])
        told = thought if isinstance(thought, str) else None
        calls = () if kind in ("finish", "reject") else (Call(kind, "", text),)
        wire: dict[str, Any] = {"role": "assistant", "content": told}
        if calls:
            wire["tool_calls"] = [{"type": "function", "function": {"name": kind, "arguments": text}}]
        self.log.reply(Said("assistant", wire, told, calls), text_of(raw), format=ACTION, at=at, place=place)

    # -- observations

    def _observation(
        self, kind: str, parts: dict[str, msgspec.Raw], raw: msgspec.Raw, at: int | None, place: str
    ) -> None:
        content = value_of(parts["content"]) if "content" in parts else None
        metadata = (raw_members(parts["tool_call_metadata"]) if "tool_call_metadata" in parts else None) or {}
        call_id = label(value_of(metadata["tool_call_id"])) if "tool_call_id" in metadata else ""
        wire = {"role": "tool", "tool_call_id": call_id, "content": content}
        said = Said("tool", wire, None, (), call_id, content, kind == "error")
        more: dict[str, Any] = {"status": "refused"} if kind == "user_rejected" else {}
        if kind not in STATES and self.log.answer(said, at, place, **more):
            self._details(f"observation {kind}", self._new_in(parts), at, place)
            self.loss.map(f"observation {kind}")
        elif kind in STATES or content is None:
            self._keep(f"observation {kind}", raw, at, place)
        else:
            self.loss.note("orphan result")
            self.log.add(said, at, place)
            self.loss.map(f"observation {kind}")

    def _new_in(self, parts: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        """Return what an observation does not merely repeat from its action."""
        last = self.last_arguments
        return {key: raw for key, raw in parts.items() if key not in last or bytes(last[key]) != bytes(raw)}

    def _details(self, kind: str, parts: dict[str, msgspec.Raw], at: int | None, place: str) -> None:
        """Keep what an event says beside the reply or result that it became."""
        told = {"tool_call_metadata", "content", "observation"} if "observation" in parts else {"tool_call_metadata"}
        if set(parts) - told - {"id", "timestamp", "source", "cause", "message"}:
            self.trajectory.keep(f"{kind} (details)", object_text(parts, without=told), at=at, place=place)

    def _keep_rest(
        self, kind: str, parts: dict[str, msgspec.Raw], told: tuple[str, ...], at: int | None, place: str
    ) -> None:
        self.trajectory.keep(f"{kind} (details)", object_text(parts, without=told), at=at, place=place)

    def _keep(self, kind: str, raw: msgspec.Raw, at: int | None, place: str) -> None:
        self.trajectory.keep(kind, text_of(raw), at=at, place=place)
        self.loss.keep(kind)

    def finish(self, outer: dict[str, msgspec.Raw] | None, place: str) -> None:
        """Keep what stands around a history, which also says that the run is over."""
        if outer is not None:
            where = place or "whole file"
            self.trajectory.keep("run", object_text(outer, without=("history",)), place=where)
            self.loss.keep("run")
            error = value_of(outer["error"]) if "error" in outer else None
            reason = error if isinstance(error, str) else ""
            self.trajectory.end("failed" if error else "completed", reason=reason, place=where)
        self.trajectory.settle()


def completion_usage(told: Any) -> Usage | None:
    """Return the usage of a completion as LiteLLM reports it: cached input is part of `prompt_tokens`."""
    usage = usage_of(told)
    if usage is None:
        return None
    return msgspec.structs.replace(
        usage,
        cached_read=usage.cached_read if usage.cached_read else first_count(told, "cache_read_input_tokens"),
        cache_write=first_count(told, "cache_creation_input_tokens"),
    )


IMPORTER: Final = OpenHands()
