"""Events of the OpenHands V1 SDK, told apart by `kind`.

Neighbouring `ActionEvent`s with one `llm_response_id` are one reply with parallel calls, so the last of them is
held back until something else follows. Usage stands only in run totals; a reply gets the rise since the reply
before it, so that the sum over replies is the run's last total.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, Usage

from ..sources import Source
from .build import Call, Trajectory, first_record_hash, label, session_id, time_us
from .chat_shapes import Said, said_of
from .contract import Item, Loss, ReadOptions
from .documents import Document, under
from .json_text import NotJson, object_text, raw_members, string_of, text_of, value_of
from .prompts import PromptLog
from .usage import first_count, or_none

NAME: Final = "openhands"
FORMAT: Final = "openhands.v1/1"
EVENT_FILE: Final = re.compile(r"event-\d+-[^/]*\.json")
TOTALS: Final = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")


def event_files(source: Source) -> list[str]:
    """Return the files of the conversation that a source is one event of (`event-00012-<id>.json`), in order; [] if it
    is no such file."""
    if not EVENT_FILE.fullmatch(os.path.basename(source.path)):
        return []
    folder = os.path.dirname(source.path) or "."
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if EVENT_FILE.fullmatch(name)]
    except OSError:
        return []


def read_event_files(paths: list[str], loss: Loss) -> Iterator[Document]:
    """Yield the events of a conversation that has one file for each."""
    for path in paths:
        name = os.path.basename(path)
        data = Source.of_path(path).read()
        try:
            value_of(data)
        except NotJson as error:
            loss.problem(name, f"is no JSON ({error}); left out")
            loss.skip("corrupt event file")
            continue
        yield Document(msgspec.Raw(data), name)


def read_v1(
    source: Source, first: Document, records: Iterator[Document], options: ReadOptions, loss: Loss
) -> Iterator[Item]:
    """Yield the items of one V1 conversation."""
    ready: list[Item] = []
    conversation = _Conversation(source, loss, ready, first)
    for record in chain((first,), records):
        conversation.event(record)
        yield from ready
        ready.clear()
    conversation.finish(options.ended)
    yield from ready


class _Conversation:
    def __init__(self, source: Source, loss: Loss, ready: list[Item], first: Document) -> None:
        self.loss = loss
        parts = raw_members(first.raw) or {}
        session = label(value_of(parts["id"])) if "id" in parts else ""
        self.trajectory = Trajectory(
            session_id(NAME, session, source.name, first.place),
            ImportSource(
                format=NAME,
                session=session,
                first_record_hash=first_record_hash(bytes(first.raw)),
                producer="openhands-sdk",
            ),
            ready.append,
            loss,
            agent=NAME,
        )
        self.trajectory.place = first.place
        self.log = PromptLog(self.trajectory)
        self.items: list[tuple[str, Said, str]] = []
        """(event id, what it says, its place) for each item of the context, in order."""
        self.totals = dict.fromkeys(TOTALS, 0)
        self.spent = dict.fromkeys(TOTALS, 0)
        self.group: list[Document] = []
        self.group_id = ""

    def event(self, record: Document) -> None:
        """Feed one event."""
        parts = raw_members(record.raw)
        if parts is None or "kind" not in parts:
            self._keep("event", record, None)
            return
        kind = label(value_of(parts["kind"]))
        at = time_us(value_of(parts["timestamp"])) if "timestamp" in parts else None
        response_id = label(value_of(parts["llm_response_id"])) if "llm_response_id" in parts else ""
        if kind == "ActionEvent":
            if self.group and response_id != self.group_id:
                self._flush()
            self.group.append(record)
            self.group_id = response_id
            return
        self._flush()
        handler = getattr(self, f"_{kind}", None) if kind in HANDLED else None
        if handler is None or not handler(parts, record, at):
            self._keep(kind, record, at)
        else:
            self.loss.map(kind)

    def finish(self, ended: bool) -> None:
        """End of the source: the last reply may still be growing."""
        if self.group and not ended:
            self.loss.hold("ActionEvent", len(self.group))
            self.group.clear()
        self._flush()
        self.trajectory.settle()

    # -- replies

    def _flush(self) -> None:
        """Emit the actions of one response as one reply."""
        if not self.group:
            return
        group, self.group = self.group, []
        texts: list[str] = []
        thought = ""
        calls = []
        for index, record in enumerate(group):
            parts = raw_members(record.raw) or {}
            base = f"/{index}" if len(group) > 1 else ""
            calls.append(_call_of(parts, base))
            texts += _texts(parts.get("thought"))
            thought = thought or label(value_of(parts["reasoning_content"]) if "reasoning_content" in parts else None)
        content = "".join(texts) if texts else None
        wire: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": [_wire_call(c) for c in calls]}
        if thought:
            wire["reasoning_content"] = thought
        said = Said("assistant", wire, content, tuple(calls), thought=thought, ident=_id_of(group[0]))
        raws = [text_of(record.raw) for record in group]
        self._reply(said, raws[0] if len(raws) == 1 else f"[{','.join(raws)}]", group[0], self.group_id)
        self.loss.map("ActionEvent", len(group))
        for record in group[1:]:
            self.items.append((_id_of(record), said, record.place))

    def _reply(self, said: Said, raw: str, record: Document, response_id: str) -> None:
        parts = raw_members(record.raw) or {}
        rise = {name: self.totals[name] - self.spent[name] for name in TOTALS}
        self.spent = dict(self.totals)
        usage = None
        if all(value >= 0 for value in rise.values()) and any(rise.values()):
            usage = or_none(
                Usage(
                    input_total=rise["prompt_tokens"],
                    cached_read=rise["cache_read_tokens"],
                    cache_write=rise["cache_write_tokens"],
                    output=rise["completion_tokens"],
                    reasoning=rise["reasoning_tokens"],
                )
            )
        at = time_us(value_of(parts["timestamp"])) if "timestamp" in parts else None
        self.log.reply(
            said,
            raw,
            format=FORMAT,
            at=at,
            place=record.place,
            usage=usage,
            model=self.trajectory.model,
            response_id=response_id,
        )
        self.items.append((_id_of(record), said, record.place))

    # -- other kinds: each returns whether it became an event

    def _SystemPromptEvent(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        texts = _texts(parts.get("system_prompt"))
        if "tools" in parts and value_of(parts["tools"]):
            self.trajectory.set_head("tools", value_of(parts["tools"]))
        text = "".join(texts)
        self._add(Said("system", {"role": "system", "content": text}, text, ident=_id_of(record)), record, at)
        self._keep_rest("SystemPromptEvent", parts, ("system_prompt", "tools"), record, at)
        return True

    def _MessageEvent(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        message = parts.get("llm_message")
        found = said_of(message) if message is not None else []
        if not found:
            return False
        said = found[0]._replace(ident=_id_of(record))
        if said.role == "assistant":
            response_id = label(value_of(parts["llm_response_id"])) if "llm_response_id" in parts else ""
            self._reply(said, text_of(record.raw), record, response_id)
        else:
            extended = _texts(parts.get("extended_content"))
            if extended and isinstance(said.text, str):
                text = "".join([said.text, *extended])
                said = said._replace(text=text, wire={"role": said.role, "content": text})
            self._add(said, record, at)
            self._keep_rest("MessageEvent", parts, ("llm_message",), record, at)
        return True

    def _ObservationEvent(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        observation = (raw_members(parts["observation"]) if "observation" in parts else None) or {}
        body = observation.get("content", observation.get("result", observation.get("output")))
        texts = _texts(body)
        output: Any = "".join(texts) if texts else (value_of(body) if body is not None else None)
        failed = "is_error" in observation and value_of(observation["is_error"]) is True
        self._answer(parts, record, at, output, failed=failed)
        rest = {key: raw for key, raw in observation.items() if raw is not body}
        told = dict(parts)
        if "observation" in parts:
            told["observation"] = msgspec.Raw(object_text(rest).encode("utf-8", "surrogateescape"))
        self.trajectory.keep("ObservationEvent (details)", object_text(told), at=at, place=record.place)
        return True

    def _AgentErrorEvent(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        self._answer(parts, record, at, value_of(parts["error"]) if "error" in parts else None, failed=True)
        if "classification" in parts:
            self.trajectory.keep("AgentErrorEvent (details)", text_of(record.raw), at=at, place=record.place)
        return True

    def _UserRejectObservation(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        call_id = label(value_of(parts["tool_call_id"])) if "tool_call_id" in parts else ""
        reason = value_of(parts["rejection_reason"]) if "rejection_reason" in parts else None
        by = label(value_of(parts["rejection_source"])) if "rejection_source" in parts else ""
        call = self.trajectory.find_call(call_id)
        if call is not None:
            self.trajectory.approval(
                call, False, approver=by or "user", because=label(reason), at=at, place=record.place
            )
        self._answer(parts, record, at, reason, status="refused")
        return True

    def _Condensation(self, parts: dict[str, msgspec.Raw], record: Document, at: int | None) -> bool:  # noqa: N802
        forgotten = set(_list(parts.get("forgotten_event_ids")))
        summary = value_of(parts["summary"]) if "summary" in parts else None
        left = [one for one in self.items if one[0] not in forgotten]
        keep = next((n for n, one in enumerate(self.items) if one[0] in forgotten), len(self.items))
        offset = value_of(parts["summary_offset"]) if "summary_offset" in parts else None
        if isinstance(offset, int) and 0 <= offset < keep:
            keep = offset
        text = summary if isinstance(summary, str) else None
        shown = len({id(said) for _, said, _ in left[:keep]})
        self.log.compacted(text, shown, at, record.place, trigger="condensation")
        behind = left[keep:]
        self.items = left[:keep]
        if text is not None:
            self.items.append((_id_of(record), Said("user", {"role": "user", "content": text}, text), record.place))
        last: Said | None = None
        for one in behind:
            if one[1] is not last:
                self.log.add(one[1], at, one[2])
            last = one[1]
            self.items.append(one)
        self.trajectory.keep("Condensation (details)", text_of(record.raw), at=at, place=record.place)
        return True

    def _ConversationStateUpdateEvent(  # noqa: N802
        self,
        parts: dict[str, msgspec.Raw],
        record: Document,  # noqa: ARG002
        at: int | None,  # noqa: ARG002
    ) -> bool:
        """Run totals are read out of it; the record itself is kept raw."""
        value = value_of(parts["value"]) if "value" in parts else None
        metrics = value.get("usage_to_metrics") if isinstance(value, dict) else None
        told = [one for one in metrics.values() if isinstance(one, dict)] if isinstance(metrics, dict) else []
        if told:
            self.totals = dict.fromkeys(TOTALS, 0)
        for one in told:
            usage = one.get("accumulated_token_usage")
            for name in TOTALS:
                self.totals[name] += (first_count(usage, name) or 0) if isinstance(usage, dict) else 0
        default = metrics.get("default") if isinstance(metrics, dict) else None
        if isinstance(default, dict) and not self.trajectory.model and not self.trajectory.settled:
            self.trajectory.model = label(default.get("model_name"))
        return False

    def _answer(
        self, parts: dict[str, msgspec.Raw], record: Document, at: int | None, output: Any, *, failed: bool = False,
        **more: Any,
    ) -> None:  # fmt: skip
        call_id = label(value_of(parts["tool_call_id"])) if "tool_call_id" in parts else ""
        wire = {"role": "tool", "tool_call_id": call_id, "content": output}
        said = Said("tool", wire, None, (), call_id, output, failed, ident=_id_of(record))
        if not self.log.answer(said, at, record.place, **more):
            self.loss.note("orphan result")
            self.log.add(said, at, record.place)
        self.items.append((_id_of(record), said, record.place))

    def _add(self, said: Said, record: Document, at: int | None) -> None:
        self.log.add(said, at, record.place)
        self.items.append((_id_of(record), said, record.place))

    def _keep_rest(
        self, kind: str, parts: dict[str, msgspec.Raw], told: tuple[str, ...], record: Document, at: int | None
    ) -> None:
        self.trajectory.keep(f"{kind} (details)", object_text(parts, without=told), at=at, place=record.place)

    def _keep(self, kind: str, record: Document, at: int | None) -> None:
        self.trajectory.keep(kind, text_of(record.raw), at=at, place=record.place)
        self.loss.keep(kind)


HANDLED: Final = frozenset(
    {"SystemPromptEvent", "MessageEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation",
     "Condensation", "ConversationStateUpdateEvent"}
)  # fmt: skip


def _id_of(record: Document) -> str:
    parts = raw_members(record.raw) or {}
    return label(value_of(parts["id"])) if "id" in parts else record.place


def _call_of(parts: dict[str, msgspec.Raw], base: str) -> Call:
    told = (raw_members(parts["tool_call"]) if "tool_call" in parts else None) or {}
    name = label(value_of(parts["tool_name"])) if "tool_name" in parts else ""
    call_id = label(value_of(parts["tool_call_id"])) if "tool_call_id" in parts else ""
    arguments = told.get("arguments")
    text = string_of(arguments) if arguments is not None else None
    if text is not None:
        return Call(name, call_id, text, under("", f"{base}/tool_call/arguments"))
    if arguments is None and "action" in parts:
        arguments = parts["action"]
    return Call(name, call_id, None if arguments is None else text_of(arguments))


def _wire_call(call: Call) -> dict[str, Any]:
    return {"id": call.provider_id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}


def _texts(raw: msgspec.Raw | None) -> list[str]:
    """Return the texts of a content: a string, a text part, or a list of them."""
    value = value_of(raw) if raw is not None else None
    if isinstance(value, str):
        return [value] if value else []
    parts = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _list(raw: msgspec.Raw | None) -> list[str]:
    value = value_of(raw) if raw is not None else None
    return [str(one) for one in value] if isinstance(value, list) else []
