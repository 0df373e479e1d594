"""OpenAI chat message lists: a bare list, `messages` inside an object, SFT and preference sets, ShareGPT.

A list has no run id, model, usage or times of its own; what the object around it says is used, the rest of that
object is kept raw. Identity: the object's `id`, else the file's name with a hash of the opening messages; in a
set of many lists the place in the set is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource

from ..sources import Source
from .build import Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, Document, first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import feed, usage_of

NAME: Final = "openai-chat"
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
SHAREGPT_ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "system": "system", "tool": "tool", "observation": "tool", "function_call": "assistant",
}  # fmt: skip
LINES: Final = "lines"
LISTS: Final = ("messages", "conversations", "prompt", "completion", "chosen", "rejected")
PARAMETERS: Final = (
    "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "max_tokens", "tool_choice",
)  # fmt: skip


def looks_like_message(value: Any) -> bool:
    """Return whether a value is one chat message."""
    return isinstance(value, dict) and value.get("role") in ROLES and ("content" in value or "tool_calls" in value)


def looks_like_list(value: Any) -> bool:
    """Return whether a value is a list of chat or ShareGPT messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and (
            looks_like_message(value[0]) or (isinstance(value[0], dict) and "from" in value[0] and "value" in value[0])
        )
    )


class OpenAIChat:
    """The importer `openai-chat`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if value is None:
            start = head.lstrip()[:400]
            if start.startswith(b"[") and b'"role"' in start and b'"content"' in start:
                return 55
            return 50 if start.startswith(b"{") and b'"messages"' in head and b'"role"' in head else 0
        if isinstance(value, list) and value and not looks_like_list(value):
            value = value[0]
        if looks_like_list(value) or looks_like_message(value):
            return 60
        if isinstance(value, dict) and any(looks_like_list(value.get(key)) for key in LISTS):
            return 60
        return 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        ready: list[Item] = []
        records = self._grouped(source, loss)
        for record in records:
            for suffix, part in _conversations(record):
                _Conversation(source, loss, ready, record, suffix).read(part)
                yield from ready
                ready.clear()

    def _grouped(self, source: Source, loss: Loss) -> Iterator[Document]:
        """Yield one record per conversation; a file that is a list of messages, or one per line, is one."""
        records = list(read_records(source, loss))
        if not records:
            raise refuse(source, "holds no record")
        first = value_of(records[0].raw)
        if looks_like_message(first) or (isinstance(first, dict) and "from" in first and "value" in first):
            whole = b"[" + b",".join(bytes(record.raw) for record in records) + b"]"
            yield Document(msgspec.Raw(whole), LINES if records[0].place.startswith("line") else "")
            return
        found = False
        for record in records:
            value = value_of(record.raw)
            is_chat = looks_like_list(value) or (
                isinstance(value, dict) and any(looks_like_list(value.get(key)) for key in LISTS)
            )
            if is_chat:
                found = True
                yield record
            else:
                loss.skip("no message list")
                loss.problem(record.place or "/", "holds no list of chat messages; left out")
        if not found:
            raise refuse(source, "holds no list of chat messages")


def _conversations(record: Document) -> list[tuple[str, list[str]]]:
    """Return the conversations of a record as (suffix, keys of its lists in order)."""
    value = value_of(record.raw)
    if isinstance(value, list):
        return [("", [])]
    have = [key for key in LISTS if looks_like_list(value.get(key))]
    if "chosen" in have or "rejected" in have:
        opening = [key for key in ("messages", "prompt") if key in have]
        return [(f"/{key}", [*opening, key]) for key in ("chosen", "rejected") if key in have]
    return [("", [key for key in have if key != "conversations" or "messages" not in have])]


class _Conversation:
    def __init__(self, source: Source, loss: Loss, ready: list[Item], record: Document, suffix: str) -> None:
        self.source, self.loss, self.ready = source, loss, ready
        self.record, self.suffix = record, suffix
        self.outer = raw_members(record.raw) or {}

    def read(self, keys: list[str]) -> None:
        """Feed the messages of one conversation."""
        messages = [
            (raw, self._place(key, index))
            for key in (keys or [""])
            for index, raw in enumerate(raw_elements(self.outer[key] if key else self.record.raw) or [])
        ]
        trajectory = self._open(messages)
        self._head(trajectory)
        choice, final = self._choice(messages)
        last_reply = max((n for n, (raw, _) in enumerate(messages) if _role(raw) == "assistant"), default=-1)
        for number, (raw, place) in enumerate(messages):
            extra = self._extra() if number == last_reply and not final else {"model": self._model()}
            self._feed(trajectory, raw, place, extra)
        if final and choice is not None:
            self._feed(trajectory, choice, under(self.record.place, "/choices/0/message"), self._extra())
        self._keep_outer(trajectory, keys)
        trajectory.settle()

    def _place(self, key: str, index: int) -> str:
        if self.record.place == LINES:
            return f"line {index + 1}"
        return under(self.record.place, f"/{key}/{index}" if key else f"/{index}")

    def _open(self, messages: list[tuple[msgspec.Raw, str]]) -> Trajectory:
        place = self.record.place
        given = value_of(self.outer["id"]) if "id" in self.outer else None
        # A file with one message per line grows at its end: only its first line never changes.
        opening = _opening([raw for raw, _ in messages[: 1 if place == LINES else None]])
        if isinstance(given, (str, int)) and not isinstance(given, bool):
            session = str(given)
        else:
            session = f"{safe_stem(self.source)}-{sha256(opening).hexdigest()[:12]}"
            if place.startswith(("line ", "/")):
                session += f"/{place.rpartition(' ')[2].strip('/') or '0'}"
        trajectory = Trajectory(
            session_id(NAME, session + self.suffix, self.source.name, place),
            ImportSource(
                format=NAME, session=session + self.suffix, first_record_hash=first_record_hash(opening), producer=NAME
            ),
            self.ready.append,
            self.loss,
        )
        trajectory.model = self._model()
        trajectory.place = place
        trajectory.last_at = self._created() or 0
        return trajectory

    def _value(self, key: str) -> Any:
        return value_of(self.outer[key]) if key in self.outer else None

    def _model(self) -> str:
        return label(self._value("model"))

    def _created(self) -> int | None:
        return time_us(self._value("created"))

    def _head(self, trajectory: Trajectory) -> None:
        tools = self._value("tools")
        if tools:
            trajectory.set_head("tools", tools)
        parameters = {key: self._value(key) for key in PARAMETERS if self._value(key) is not None}
        if parameters:
            trajectory.set_head("parameters", parameters)
            trajectory.sampling = record_tree(parameters)

    def _choice(self, messages: list[tuple[msgspec.Raw, str]]) -> tuple[msgspec.Raw | None, bool]:
        """Return the message of the first choice, and whether it is a reply that the list does not hold yet."""
        choices = raw_elements(self.outer["choices"]) if "choices" in self.outer else None
        choice = (raw_members(choices[0]) or {}).get("message") if choices else None
        if choice is None or not looks_like_message(value_of(choice)):
            return None, False
        return choice, not (messages and _same_reply(value_of(messages[-1][0]), value_of(choice)))

    def _extra(self) -> dict[str, Any]:
        choices = self._value("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        reason = choice.get("finish_reason") if isinstance(choice, dict) else None
        return {
            "model": self._model(),
            "usage": usage_of(self._value("usage")),
            "stop_reason": label(reason) if reason is not None else None,
            "response_id": label(self._value("id")) if "choices" in self.outer else "",
        }

    def _feed(self, trajectory: Trajectory, raw: msgspec.Raw, place: str, extra: dict[str, Any]) -> None:
        raw = _from_sharegpt(raw)
        kind = feed(trajectory, raw, place=place, **extra)
        if kind:
            self.loss.map(kind)
        else:
            trajectory.keep("message", text_of(raw), place=place)
            self.loss.keep("message")

    def _keep_outer(self, trajectory: Trajectory, keys: list[str]) -> None:
        """Keep what stands around the list: one record of everything that became no event."""
        told = (*keys, "tools", "messages", "choices")
        if set(self.outer) - set(told):
            trajectory.keep("document", object_text(self.outer, without=told), place=self.record.place or WHOLE)
            self.loss.keep("document")


def _role(raw: msgspec.Raw) -> str:
    value = value_of(_from_sharegpt(raw))
    return str(value.get("role")) if isinstance(value, dict) else ""


def _opening(raws: list[msgspec.Raw]) -> bytes:
    taken = []
    for raw in raws:
        taken.append(bytes(raw))
        if _role(raw) == "user":
            break
    return b"\n".join(taken)


def _same_reply(one: Any, other: Any) -> bool:
    keys = ("role", "content", "tool_calls")
    return isinstance(one, dict) and all((one.get(key) or None) == (other.get(key) or None) for key in keys)


def _from_sharegpt(raw: msgspec.Raw) -> msgspec.Raw:
    """Return a ShareGPT turn as a chat message; anything else as it is."""
    parts = raw_members(raw)
    if not parts or "from" not in parts or "value" not in parts or "role" in parts:
        return raw
    role = SHAREGPT_ROLES.get(str(value_of(parts["from"])), str(value_of(parts["from"])))
    return msgspec.Raw(b'{"role":' + msgspec.json.encode(role) + b',"content":' + bytes(parts["value"]) + b"}")


IMPORTER: Final = OpenAIChat()
