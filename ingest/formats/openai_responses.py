"""OpenAI Responses objects, and NeMo-Gym rollouts that wrap them (tool outputs stand inside `response.output`).

A response whose output holds only what the model produced is one reply with its body verbatim. In a rollout the
output is a whole conversation: it is cut into replies, and the usage, which is the rollout's, goes to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource, Usage

from ..sources import Source
from .build import Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, Document, first_value, read_records, refuse, safe_stem, under
from .json_text import object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import feed
from .responses_parts import add_output, add_reply, breaks_reply, kind_of, message_text
from .usage import responses_usage

NAME: Final = "openai-responses"
PARAMETERS: Final = ("temperature", "top_p", "max_output_tokens", "reasoning", "tool_choice", "text", "truncation")


class OpenAIResponses:
    """The importer `openai-responses`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            rollout = "responses_create_params" in value or "expected_output" in value
            return 90 if rollout or (value.get("object") == "response" and "output" in value) else 0
        start = head[:20_000]
        if b'"responses_create_params"' in start:
            return 90
        return 80 if b'"object": "response"' in start or b'"object":"response"' in start else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        ready: list[Item] = []
        reader = _Reader(source, loss, ready)
        found = False
        for record in read_records(source, loss):
            if not reader.take(record):
                if not found:
                    raise refuse(source, "holds no Responses object and no rollout of one")
                loss.skip("no response")
                loss.problem(record.place, "is no Responses object; left out")
                continue
            found = True
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "holds no Responses object")


class _Reader:
    def __init__(self, source: Source, loss: Loss, ready: list[Item]) -> None:
        self.source, self.loss, self.ready = source, loss, ready
        self.used: dict[str, int] = {}

    def take(self, record: Document) -> bool:
        """Read one record; False if it is none of this format."""
        parts = raw_members(record.raw)
        if parts is None:
            return False
        if "expected_output" in parts:
            self._logs(record, parts)
            return True
        body = parts.get("response", record.raw)
        outer = raw_members(body) or {}
        if "output" not in outer or raw_elements(outer["output"]) is None:
            return False
        _Response(self, record, parts, body, outer).read()
        return True

    def open(self, session: str, record: Document, first: bytes) -> Trajectory:
        """Return the trajectory of a session name, told apart where the name is used again."""
        self.used[session] = self.used.get(session, 0) + 1
        if self.used[session] > 1:
            self.loss.note("session name repeated")
            session = f"{session}.{self.used[session]}"
        trajectory = Trajectory(
            session_id(NAME, session, self.source.name, record.place),
            ImportSource(format=NAME, session=session, first_record_hash=first_record_hash(first), producer=NAME),
            self.ready.append,
            self.loss,
            agent=NAME,
        )
        trajectory.place = record.place or WHOLE
        return trajectory

    def _logs(self, record: Document, parts: dict[str, msgspec.Raw]) -> None:
        """NeMo-RL test sets: message logs with token ids and logprobs beside the inputs they came from."""
        inputs = raw_elements(parts["input"]) if "input" in parts else None
        for number, log in enumerate(raw_elements(parts["expected_output"]) or []):
            members = raw_members(log) or {}
            place = under(record.place, f"/expected_output/{number}")
            trajectory = self.open(f"{safe_stem(self.source)}/{number}", record, bytes(members.get("message_log", b"")))
            for index, raw in enumerate(raw_elements(members["message_log"]) or [] if "message_log" in members else []):
                self._logged(trajectory, raw, under(place, f"/message_log/{index}"))
            rest = object_text(members, without=("message_log",))
            trajectory.keep("rollout", rest, place=place)
            if inputs is not None and number < len(inputs):
                trajectory.keep("input", text_of(inputs[number]), place=under(record.place, f"/input/{number}"))
                self.loss.keep("input")
            self.loss.keep("rollout")
            trajectory.settle()

    def _logged(self, trajectory: Trajectory, raw: msgspec.Raw, place: str) -> None:
        parts = raw_members(raw) or {}
        tokens = value_of(parts["token_ids"]) if "token_ids" in parts else None
        logprobs = value_of(parts["generation_logprobs"]) if "generation_logprobs" in parts else None
        if "role" in parts and value_of(parts["role"]) == "assistant":
            bare = msgspec.Raw(object_text(parts, without=("token_ids", "generation_logprobs")).encode())
            kind = feed(trajectory, bare, place=place, token_ids=record_tree(tokens), logprobs=record_tree(logprobs))
        else:
            kind = feed(trajectory, raw, place=place)
        if kind:
            self.loss.map(kind)
        else:
            trajectory.keep("message", text_of(raw), place=place)
            self.loss.keep("message")


class _Response:
    """One response, alone or inside a rollout."""

    def __init__(
        self,
        reader: _Reader,
        record: Document,
        parts: dict[str, msgspec.Raw],
        body: msgspec.Raw,
        outer: dict[str, msgspec.Raw],
    ) -> None:
        self.reader, self.record, self.parts, self.body, self.outer = reader, record, parts, body, outer
        self.loss = reader.loss
        self.at = time_us(self._value("created_at"))
        self.pending: list[tuple[msgspec.Raw, str]] = []
        self.values: list[dict[str, Any]] = []
        self.base = "/response/output" if "response" in parts else "/output"

    def _value(self, key: str) -> Any:
        return value_of(self.outer[key]) if key in self.outer else None

    def read(self) -> None:
        """Feed request, output, and what stands around them."""
        items = raw_elements(self.outer["output"]) or []
        values = [value_of(item) for item in items]
        trajectory = self.reader.open(self._session(), self.record, bytes(items[0]) if items else b"")
        trajectory.model = label(self._value("model"))
        trajectory.last_at = self.at or 0
        self._head(trajectory)
        self._request(trajectory)
        whole = all(kind_of(value) == "model" for value in values) and not self._splits(values)
        last = max((n for n, value in enumerate(values) if kind_of(value) == "model"), default=-1)
        for number, (raw, value) in enumerate(zip(items, values, strict=True)):
            self._item(trajectory, raw, value, under(self.record.place, f"{self.base}/{number}"))
            if number == last:
                self._reply(trajectory, whole, self._usage())
        if last < 0:
            self.loss.note("response without anything the model produced")
        self._rest(trajectory, whole and bool(items))
        trajectory.settle()

    def _session(self) -> str:
        task, rollout = (value_of(self.parts[key]) if key in self.parts else None for key in _INDEXES)
        if task is not None:
            return f"{safe_stem(self.reader.source)}/{label(task)}-{label(rollout or 0)}"
        given = self._value("id")
        return given if isinstance(given, str) and given else f"unnamed-{first_record_hash(bytes(self.body))[:16]}"

    def _splits(self, values: list[dict[str, Any]]) -> bool:
        return any(breaks_reply(values[:number], value) for number, value in enumerate(values))

    def _head(self, trajectory: Trajectory) -> None:
        if self._value("tools"):
            trajectory.set_head("tools", self._value("tools"))
        if self._value("instructions"):
            trajectory.set_head("system", self._value("instructions"))
        parameters = {key: self._value(key) for key in PARAMETERS if self._value(key) is not None}
        if parameters:
            trajectory.set_head("parameters", parameters)
            trajectory.sampling = record_tree(parameters)

    def _request(self, trajectory: Trajectory) -> None:
        asked = raw_members(self.parts["responses_create_params"]) if "responses_create_params" in self.parts else None
        given = asked.get("input") if asked else None
        if given is None:
            return
        elements = raw_elements(given)
        if elements is None:
            elements = [msgspec.Raw(b'{"role":"user","content":' + bytes(given) + b"}")]
        for index, raw in enumerate(elements):
            place = under(self.record.place, f"/responses_create_params/input/{index}")
            self._item(trajectory, raw, value_of(raw), place)
        self._reply(trajectory, False, None)

    def _item(self, trajectory: Trajectory, raw: msgspec.Raw, value: Any, place: str) -> None:
        kind = kind_of(value)
        if kind == "model":
            if breaks_reply(self.values, value):
                self._reply(trajectory, False, None)
            self.pending.append((raw, place))
            self.values.append(value)
            return
        self._reply(trajectory, False, None)
        if kind == "output":
            add_output(trajectory, value, place=place, at=self.at)
        elif kind == "message":
            if value.get("role") == "user":
                trajectory.set_task(message_text(value))
            trajectory.message(label(value["role"]), value, place=place, at=self.at)
        else:
            trajectory.keep("item", text_of(raw), place=place)
            self.loss.keep("item")
            return
        self.loss.map(label(value.get("type")) or "message")

    def _reply(self, trajectory: Trajectory, whole: bool, usage: Usage | None) -> None:
        if not self.pending:
            return
        pending, self.pending, self.values = self.pending, [], []
        reason = self._value("status") if usage is not None or whole else None
        add_reply(
            trajectory,
            pending,
            raw=text_of(self.body) if whole else None,
            at=self.at,
            usage=usage,
            model=label(self._value("model")),
            response_id=label(self._value("id")),
            stop_reason=label(reason) if reason is not None else None,
        )
        for raw, _ in pending:
            self.loss.map(label((value_of(raw) or {}).get("type")))

    def _usage(self) -> Usage | None:
        return responses_usage(self._value("usage"))

    def _rest(self, trajectory: Trajectory, whole: bool) -> None:
        """Keep what became no event: the body's other members (where it is not verbatim already), the rollout's."""
        place = self.record.place or WHOLE
        if not whole:
            trajectory.keep("response", object_text(self.outer, without=("output",)), place=place)
            self.loss.keep("response")
        if "response" not in self.parts:
            return
        asked = raw_members(self.parts.get("responses_create_params", b"null")) or {}
        if asked:
            trajectory.keep("request", object_text(asked, without=("input",)), place=place)
            self.loss.keep("request")
        rest = object_text(self.parts, without=("response", "responses_create_params"))
        trajectory.keep("reward" if "reward" in self.parts else "rollout", rest, place=place)
        self.loss.keep("reward" if "reward" in self.parts else "rollout")
        if "reward" in self.parts:
            trajectory.end("completed", reason="the rollout was verified", place=place)


_INDEXES: Final = ("_ng_task_index", "_ng_rollout_index")
IMPORTER: Final = OpenAIResponses()
