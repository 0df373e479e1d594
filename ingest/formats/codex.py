"""Codex CLI rollouts (`~/.codex/sessions/**/rollout-*.jsonl`), with and without the envelope of newer builds.

Response items that the model produced stand one by one; they are gathered into replies (`responses_parts`). The
`token_count` event that follows a response gives its usage; where none follows, the reply closes at the next
record that can only come later. User and assistant texts are written twice: `event_msg` copies are kept raw.
`compacted` repeats history: what an earlier event holds is put back by reference, only the rest is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from trajlake.schemas.canonical_json import exact_canonical
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import Usage

from ..sources import Source
from .anthropic_parts import count
from .build import Trajectory, label, record_tree, time_us
from .contract import Item, Loss, ReadOptions
from .documents import first_value, refuse
from .json_text import raw_members
from .responses_parts import add_output, add_reply, breaks_reply, kind_of, message_text
from .session_lines import Entry, SessionLines

NAME: Final = "codex"
BESIDE: Final = frozenset(
    {
        "token_count", "exec_command_begin", "exec_command_end", "exec_command_output_delta", "mcp_tool_call_begin",
        "mcp_tool_call_end", "patch_apply_begin", "patch_apply_end", "agent_reasoning", "agent_message",
        "agent_reasoning_raw_content", "web_search_begin", "web_search_end", "view_image_tool_call",
        "guardian_assessment", "task_started", "turn_diff", "background_event", "thread_settings_applied",
        "context_compacted", "image_generation_end", "item_started", "item_completed", "turn_aborted",
    }
)  # fmt: skip
"""Events that may stand among the items of one response: they end nothing."""
UNNAMED_IDS: Final = ("id", "internal_chat_message_metadata_passthrough", "metadata", "phase", "status")
"""Members that differ between an item and its repetition in a compacted history."""


class _Reader(SessionLines):
    name = NAME

    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        super().__init__(source, options, loss)
        self.items: list[tuple[msgspec.Raw, Entry, dict[str, Any]]] = []
        self.answered = False
        self.usage: Usage | None = None
        self.spare: Usage | None = None
        self.model = ""
        self.forked_at: int | None = None
        self.held: dict[str, int] = {}

    def time_of(self, value: dict[str, Any]) -> int | None:
        return time_us(value.get("timestamp") or value.get("created_at"))

    def opening(self, entry: Entry) -> Trajectory:
        payload = entry.value.get("payload")
        facts = payload if isinstance(payload, dict) else entry.value
        given = facts.get("id") if payload is None or entry.value.get("type") == "session_meta" else None
        session = given if isinstance(given, str) else self.unnamed(entry)
        above = facts.get("parent_thread_id")
        if isinstance(facts.get("forked_from_id"), str):
            self.forked_at = time_us(facts.get("timestamp"))
        parent = above if isinstance(above, str) and above and above != session else ""
        return self.open(session, entry, producer_version=facts.get("cli_version"), parent=parent)

    def take(self, entry: Entry) -> None:
        value = entry.value
        kind = label(value.get("type"))
        parts = raw_members(entry.data) or {}
        payload = value.get("payload")
        if kind == "response_item" and isinstance(payload, dict):
            self._item(parts["payload"], payload, entry)
        elif kind == "event_msg" and isinstance(payload, dict):
            self._event(payload, entry)
        elif kind == "compacted" and isinstance(payload, dict):
            self._close()
            self._compacted(payload, entry)
        elif "payload" not in value and kind_of(_drifted(value)):
            raw, item = _as_item(entry, value)
            self._item(raw, item, entry)
        else:
            if kind == "turn_context" and isinstance(payload, dict):
                self._turn(payload)
            self._after_answer()
            self.keep(kind or label(value.get("record_type")) or "untyped", entry)

    def _turn(self, payload: dict[str, Any]) -> None:
        self._close()
        self.model = label(payload.get("model")) or self.model
        if self.model and not self.trajectory.model:
            self.trajectory.model = self.model

    # -- items

    def _item(self, raw: msgspec.Raw, item: dict[str, Any], entry: Entry) -> None:
        kind = kind_of(item)
        name = label(item.get("type")) or "message"
        copied = self.forked_at is not None and entry.at is not None and entry.at < self.forked_at
        if copied and kind:
            role = label(item.get("role")) or ("tool" if kind == "output" else "assistant")
            self.trajectory.message(role, item, at=entry.at, place=entry.place, origin="copied")
            self.loss.map(f"{name}/copied")
        elif kind == "model":
            if self.answered or breaks_reply([one for _, _, one in self.items], item):
                self._close()
            self.items.append((raw, entry, item))
            self.wait()
        elif kind == "output":
            self.answered = bool(self.items)
            self.later(name, lambda: self._output(item, entry))
        elif kind == "message":
            self._close()
            self._message(item, entry)
        else:
            self._after_answer()
            self.keep(f"response_item/{name}", entry)

    def _output(self, item: dict[str, Any], entry: Entry) -> None:
        add_output(self.trajectory, item, place=entry.place, at=entry.at)
        self.loss.map(label(item.get("type")))

    def _message(self, item: dict[str, Any], entry: Entry) -> None:
        if item.get("role") == "user":
            self.trajectory.set_task(message_text(item))
        number = self.trajectory.message(label(item["role"]), item, at=entry.at, place=entry.place)
        self.held.setdefault(_identity(item), number)
        self.loss.map(f"message/{label(item['role'])}")

    def _close(self) -> None:
        """The open reply is complete: out with it, and with what waited for it."""
        items, self.items = self.items, []
        usage, self.usage, self.answered = self.usage, None, False
        if items:
            if usage is None and self.spare is not None:
                usage, self.spare = self.spare, None
                self.loss.note("usage reported behind another reply: counted with the next one")
            entry = items[0][1]
            add_reply(
                self.trajectory,
                [(raw, one.place) for raw, one, _ in items],
                at=entry.at,
                usage=usage,
                model=self.model,
            )
            for _, _, item in items:
                self.loss.map(label(item.get("type")))
        self.release()

    def _after_answer(self) -> None:
        if self.answered:
            self._close()

    # -- events

    def _event(self, payload: dict[str, Any], entry: Entry) -> None:
        kind = label(payload.get("type"))
        if kind == "token_count" and (usage := _usage(payload)) is not None:
            self._count(usage, entry)
            return
        if kind == "guardian_assessment":
            self.later(f"event_msg/{kind}", lambda: self._assessment(payload, entry))
            return
        if kind not in BESIDE:
            self._close()
        elif kind.startswith("item_") or kind in ("task_started", "agent_message"):
            self._after_answer()
        self.keep(f"event_msg/{kind}", entry)

    def _count(self, usage: Usage, entry: Entry) -> None:
        """Give a response's usage to the open reply; without one, to the next."""
        if self.items:
            self.usage = usage
            self._close()
            self.loss.map("event_msg/token_count")
            return
        if usage.output or usage.input_total:
            self.spare = usage
        self.keep("event_msg/token_count", entry)

    def _assessment(self, payload: dict[str, Any], entry: Entry) -> None:
        """A reviewer's verdict about one call: an approval where it names a call that is open."""
        call = self.trajectory.find_call(label(payload.get("target_item_id")))
        verdict = payload.get("status")
        if call is None or verdict not in ("approved", "denied"):
            self.keep_now("event_msg/guardian_assessment", entry)
            return
        self.trajectory.approval(
            call,
            verdict == "approved",
            approver=label(payload.get("decision_source")) or "guardian",
            because=label(payload.get("rationale")),
            at=entry.at,
            place=entry.place,
        )
        self.loss.map("event_msg/guardian_assessment")

    def _compacted(self, payload: dict[str, Any], entry: Entry) -> None:
        summary = payload.get("message")
        history = payload.get("replacement_history")
        self.trajectory.compacted(
            summary if isinstance(summary, str) and summary else None, at=entry.at, place=entry.place, trigger="codex"
        )
        for item in history if isinstance(history, list) else []:
            if not isinstance(item, dict):
                continue
            number = self.held.get(_identity(item))
            if number is not None:
                self.trajectory.recall_item(number)
                self.loss.note("compacted history: item put back by reference")
            else:
                role = label(item.get("role")) or "assistant"
                number = self.trajectory.message(role, item, at=entry.at, place=entry.place, origin="copied")
                self.held[_identity(item)] = number
        self.loss.map("compacted")

    def finish(self) -> None:
        legacy = "payload" not in self.first_value
        if self.items and (self.options.ended or legacy):
            self._close()
        elif self.items:
            for _, _, item in self.items:
                self.loss.hold(label(item.get("type")))
            self.hold_back()


def _drifted(value: dict[str, Any]) -> dict[str, Any]:
    """Return a line without envelope as an item: old and drifted spellings of messages, calls and results."""
    kind = value.get("type")
    if kind in ("function_call", "function_result") and "call_id" not in value:
        return {**value, "type": "function_call" if kind == "function_call" else "function_call_output"}
    if kind is None and isinstance(value.get("role"), str):
        return {**value, "type": "message"}
    return value


def _as_item(entry: Entry, value: dict[str, Any]) -> tuple[msgspec.Raw, dict[str, Any]]:
    """Return the text and the value of an item without envelope."""
    item = _drifted(value)
    if item.get("type") == "function_call" and isinstance(item.get("function"), dict) and "name" not in item:
        item = {**item, "name": item["function"].get("name")}
    if item.get("type") == "function_call_output" and "output" not in item:
        item = {**item, "output": item.get("result")}
    if item == value:
        return msgspec.Raw(entry.data), item
    parts = dict(raw_members(entry.data) or {})
    for key, one in item.items():
        if key not in value or value[key] != one:
            parts[key] = msgspec.Raw(msgspec.json.encode(record_tree(one)))
    body = b",".join(msgspec.json.encode(key) + b":" + bytes(raw) for key, raw in parts.items())
    return msgspec.Raw(b"{" + body + b"}"), item


def _identity(item: dict[str, Any]) -> str:
    bare = {key: value for key, value in item.items() if key not in UNNAMED_IDS}
    try:
        return sha256(exact_canonical(record_tree(bare))).hexdigest()
    except SchemaError:
        return ""


def _usage(payload: dict[str, Any]) -> Usage | None:
    info = payload.get("info")
    last = info.get("last_token_usage") if isinstance(info, dict) else None
    if not isinstance(last, dict):
        return None
    return Usage(
        input_total=count(last.get("input_tokens")),
        cached_read=count(last.get("cached_input_tokens")),
        cache_write=count(last.get("cache_write_input_tokens")),
        output=count(last.get("output_tokens")),
        reasoning=count(last.get("reasoning_output_tokens")),
    )


class Codex:
    """The importer `codex`."""

    name = NAME
    mapping_version = 0
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def sniff(self, head: bytes, name: str) -> int:
        score = 0
        for data in head.split(b"\n")[:20]:
            value = first_value(data)
            if not isinstance(value, dict) or "sessionId" in value:
                continue
            if value.get("type") in ("session_meta", "response_item", "turn_context") and "payload" in value:
                return 95
            if value.get("record_type") == "state" or ("instructions" in value and "git" in value):
                score = max(score, 85)
            elif value.get("type") in ("function_call", "function_call_output", "reasoning", "function_result"):
                score = max(score, 70)
        if not score and head.lstrip()[:200].startswith(b'{"timestamp"') and b'"session_meta"' in head[:400]:
            return 95
        return score if score else 30 if "rollout-" in name and head.startswith(b"{") else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        if not self.sniff(source.head(), source.name):
            raise refuse(source, "is no Codex rollout")
        return _Reader(source, options, loss).read()


IMPORTER: Final = Codex()
