"""Kimi Code wire logs: one event per line. A step (step.begin ... step.end) is one model call.

Calls, their approvals and their results stand inside the step, before its end: they follow its reply here. A step
without an end was broken off. A compaction is a model call of its own, outside the turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import Usage

from ..sources import Source
from .anthropic_parts import count, text_or_value
from .build import Call, Trajectory, label, time_us
from .contract import Item, Loss, ReadOptions
from .json_text import raw_members, text_of
from .session_lines import Entry, SessionLines

NAME: Final = "kimi"
FORMAT: Final = "kimi.wire/1"


class _Step:
    def __init__(self, entry: Entry) -> None:
        self.first = entry
        self.parts: list[msgspec.Raw] = []
        self.calls: list[tuple[msgspec.Raw, Call]] = []
        self.records = 1


class _Reader(SessionLines):
    name = NAME

    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        super().__init__(source, options, loss)
        self.step: _Step | None = None
        self.model = ""
        self.compacting = False
        self.compaction_usage: Entry | None = None

    def time_of(self, value: dict[str, Any]) -> int | None:
        return time_us(value.get("time") or value.get("created_at"))

    def opening(self, entry: Entry) -> Trajectory:
        version = entry.value.get("protocol_version")
        session = entry.value.get("session_id")
        name = session if isinstance(session, str) else self.unnamed(entry)
        return self.open(name, entry, producer_version=version)

    def take(self, entry: Entry) -> None:
        kind = label(entry.value.get("type")) or "untyped"
        if kind == "context.append_loop_event" and isinstance(entry.value.get("event"), dict):
            self._loop_event(entry, entry.value["event"])
        elif kind == "context.append_message" and isinstance(entry.value.get("message"), dict):
            self._message(entry, entry.value["message"])
        elif kind == "permission.record_approval_result":
            self.later(kind, lambda: self._approval(entry))
        elif kind == "context.apply_compaction":
            self._compaction(entry)
        elif kind == "usage.record" and self.compacting:
            self.compaction_usage = entry
        elif kind == "usage.record":
            self.loss.skip("usage.record (repeats step.end)")
        else:
            self._other(kind, entry)

    def _other(self, kind: str, entry: Entry) -> None:
        if kind == "llm.request":
            self.model = label(entry.value.get("model")) or self.model
        elif kind == "turn.prompt":
            self._close(None)
        elif kind in ("full_compaction.begin", "full_compaction.complete"):
            self._close(None)
            self.compacting = kind.endswith("begin")
        self.keep(kind, entry)

    def _loop_event(self, entry: Entry, event: dict[str, Any]) -> None:
        kind = label(event.get("type"))
        raw = (raw_members(entry.data) or {})["event"]
        if kind == "step.begin":
            self._close(None)
            self.step = _Step(entry)
            self.wait()
        elif kind == "step.end" and self.step is not None:
            self._close(entry)
        elif kind == "content.part" and self.step is not None:
            self.step.parts.append((raw_members(raw) or {}).get("part", raw))
            self.step.records += 1
        elif kind == "tool.call" and self.step is not None:
            parts = raw_members(raw) or {}
            arguments = text_of(parts["args"]) if "args" in parts else None
            self.step.calls.append((raw, Call(label(event.get("name")), label(event.get("toolCallId")), arguments)))
            self.step.records += 1
        elif kind == "tool.result":
            self.later(f"loop/{kind}", lambda: self._result(entry, event))
        else:
            self.keep(f"loop/{kind}", entry)

    def _close(self, end: Entry | None) -> None:
        step, self.step = self.step, None
        if step is None:
            return
        event = end.value["event"] if end is not None else {}
        text = _reply_text(step, end)
        self.trajectory.reply(
            text,
            msgspec.json.decode(text) if text.isascii() or _decodes(text) else text,
            format=FORMAT,
            calls=[call for _, call in step.calls],
            at=step.first.at,
            place=step.first.place,
            status="kept" if end is not None or step.parts or step.calls else "error",
            usage=_usage(event.get("usage")),
            model=self.model,
            stop_reason=label(event.get("finishReason")) if event.get("finishReason") is not None else None,
            response_id=label(event.get("messageId")),
            duration_ms=_number(event.get("llmStreamDurationMs")),
            error="" if end is not None else "the step has no end",
            in_context=bool(step.parts or step.calls),
        )
        self.loss.map("step", step.records + (end is not None))
        self.release()

    def _result(self, entry: Entry, event: dict[str, Any]) -> None:
        result = event.get("result")
        body = result if isinstance(result, dict) else {"output": result}
        output = body.get("output")
        failed = body.get("isError") is True or body.get("is_error") is True
        self.trajectory.result(
            label(event.get("toolCallId")),
            text_or_value(output),
            event,
            status="error" if failed else "ok",
            at=entry.at,
            place=entry.place,
            keep_wire=set(body) != {"output"} or not isinstance(output, str),
        )
        self.loss.map("tool.result")

    def _approval(self, entry: Entry) -> None:
        value = entry.value
        call = self.trajectory.find_call(label(value.get("toolCallId")))
        result = value.get("result")
        decision = result.get("decision") if isinstance(result, dict) else None
        if call is None or not isinstance(decision, str):
            self.keep_now("permission.record_approval_result", entry)
            return
        self.trajectory.approval(
            call,
            decision == "approved",
            approver="user",
            because=label(result.get("feedback") or result.get("scope")) if isinstance(result, dict) else "",
            question=label(value.get("action")),
            at=entry.at,
            place=entry.place,
        )
        self.loss.map("permission.record_approval_result")

    def _message(self, entry: Entry, message: dict[str, Any]) -> None:
        self._close(None)
        role = label(message.get("role")) or "user"
        content = message.get("content")
        if role == "user":
            self.trajectory.set_task(text_or_value(content))
        self.trajectory.message(role, message, at=entry.at, place=entry.place)
        self.loss.map(f"message/{role}")

    def _compaction(self, entry: Entry) -> None:
        self._close(None)
        value, counted = entry.value, self.compaction_usage
        text = text_of(entry.data)
        usage = _usage(counted.value.get("usage")) if counted is not None else None
        number = self.trajectory.reply(
            text, value, format=FORMAT, purpose="compact", at=entry.at, place=entry.place, usage=usage,
            model=self.model, in_context=False,
        )  # fmt: skip
        self.loss.map("usage.record", counted is not None)
        self.compaction_usage = None
        before, after = value.get("tokensBefore"), value.get("tokensAfter")
        self.trajectory.compacted(
            value.get("contextSummary") or value.get("summary"),
            at=entry.at,
            place=entry.place,
            reply=number,
            tokens_before=before if isinstance(before, int) else None,
            tokens_after=after if isinstance(after, int) else None,
        )
        self.loss.map("context.apply_compaction")

    def finish(self) -> None:
        if self.step is not None and self.options.ended:
            self._close(None)
        elif self.step is not None:
            self.loss.hold("step", self.step.records)
            self.hold_back()
        if self.compaction_usage is not None:
            self.loss.hold("usage.record")


def _reply_text(step: _Step, end: Entry | None) -> str:
    content = ",".join(text_of(part) for part in step.parts)
    calls = ",".join(text_of(raw) for raw, _ in step.calls)
    last = f',"end":{text_of((raw_members(end.data) or {})["event"])}' if end is not None else ""
    return f'{{"role":"assistant","content":[{content}],"toolCalls":[{calls}]{last}}}'


def _decodes(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def _usage(tree: Any) -> Usage | None:
    if not isinstance(tree, dict):
        return None
    fresh, read = count(tree.get("inputOther")), count(tree.get("inputCacheRead"))
    written = count(tree.get("inputCacheCreation"))
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    return Usage(input_total=total, cached_read=read, cache_write=written, output=count(tree.get("output")))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Kimi:
    """The importer `kimi`."""

    name = NAME
    mapping_version = 0
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        first = head.lstrip()[:400]
        if b'"protocol_version"' in first and b'"metadata"' in first:
            return 93
        return 85 if b'"context.append_loop_event"' in head or b'"turn.prompt"' in head else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        return _Reader(source, options, loss).read()


IMPORTER: Final = Kimi()
