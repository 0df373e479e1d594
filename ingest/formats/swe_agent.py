"""SWE-agent `.traj` files of 0.x and 1.x: {history, trajectory, info, environment, replay_config}.

`history` is the conversation and gives the messages, replies and results. A step of `trajectory` repeats the
prompt: what it repeats is counted as such and not stored again; a message that `history` does not hold is kept,
once. What a step alone knows (state, execution time, raw observation) is kept. Identity: the instance and a hash
of everything up to the first reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource
from trajlake.schemas.events.life import EndStatus

from ..sources import Source
from .build import Trajectory, first_record_hash, label, session_id
from .chat_shapes import Said, said_of
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, read_document, refuse, safe_stem
from .json_text import NotJson, object_text, raw_elements, raw_members, text_of, value_of
from .prompts import PromptLog

NAME: Final = "swe-agent"
CHAT: Final = "openai.chat/1"
REPEATED: Final = {"response": ("content",), "thought": ("thought", "content"), "action": ("action",)}
"""Fields of a step that repeat fields of its reply in `history`."""


class SweAgent:
    """The importer `swe-agent`."""

    name = NAME
    mapping_version = 0
    suffixes = (".traj", ".traj.gz", ".traj.zst")

    def sniff(self, head: bytes, name: str) -> int:
        start = head.lstrip()[:4096]
        if not start.startswith(b"{"):
            return 0
        if b'"trajectory"' in start and b'"action"' in head and b'"observation"' in head:
            return 95
        if b'"history"' in start and b'"role"' in start:
            return 85 if b'"message_type"' in start or b'"agent"' in start or name.endswith(".traj") else 0
        return 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        outer = raw_members(read_document(source))
        history = raw_elements(outer["history"]) if outer and "history" in outer else None
        steps = raw_elements(outer["trajectory"]) if outer and "trajectory" in outer else None
        if outer is None or not (history or steps):
            raise refuse(source, "holds no SWE-agent history or trajectory")
        ready: list[Item] = []
        run = _Run(source, loss, ready, outer, history or [], steps or [])
        for _ in run.read():
            yield from ready
            ready.clear()
        yield from ready


class _Run:
    def __init__(
        self,
        source: Source,
        loss: Loss,
        ready: list[Item],
        outer: dict[str, msgspec.Raw],
        history: list[msgspec.Raw],
        steps: list[msgspec.Raw],
    ) -> None:
        self.loss, self.outer, self.history, self.steps = loss, outer, history, steps
        info = value_of(outer["info"]) if "info" in outer else {}
        self.info: dict[str, Any] = info if isinstance(info, dict) else {}
        opening = b"\n".join(_opening(history or steps))
        instance = label(value_of(outer["environment"])) if "environment" in outer else ""
        if instance in ("", "main", "swe_main"):
            instance = safe_stem(source)
        session = f"{instance}-{sha256(opening).hexdigest()[:12]}"
        self.trajectory = Trajectory(
            session_id(NAME, session, source.name, "/environment"),
            ImportSource(
                format=NAME,
                session=session,
                first_record_hash=first_record_hash(opening),
                producer=NAME,
                producer_version=label(self.info.get("swe_agent_version")),
            ),
            ready.append,
            loss,
            agent=NAME,
        )
        self.trajectory.place = WHOLE
        self.trajectory.model = _model(outer)
        self.log = PromptLog(self.trajectory)
        self.known = {_prompt_key(raw) for raw in history}
        self.kept_prompts: set[str] = set()

    def read(self) -> Iterator[None]:
        """Feed everything, one record at a time."""
        replies = [index for index, raw in enumerate(self.history) if _is_reply(raw)]
        paired = self._pairs(replies)
        done = 0
        for index, raw in enumerate(self.history):
            if index in paired:
                for number in range(done, paired[index]):
                    self._lost_step(number)
                self._show(paired[index])
                done = paired[index] + 1
            self._message(raw, f"/history/{index}", self._tools_ran(index))
            if index in paired:
                self._step(paired[index], raw)
            yield None
        for number in range(done, len(self.steps)):
            self._lost_step(number)
            yield None
        self._finish()

    def _show(self, number: int) -> None:
        """From 1.1 on a step holds the exact prompt of its reply: history with old observations shortened."""
        place = f"/trajectory/{number}/query"
        parts = raw_members(self.steps[number]) or {}
        raws = raw_elements(parts["query"]) if "query" in parts else None
        if not raws:
            return
        shown: list[Said] = []
        places: list[str] = []
        for index, raw in enumerate(raws):
            ids = _value(raw, "tool_call_ids")
            found = [
                one._replace(call_id=label(ids[0])) if one.role == "tool" and isinstance(ids, list) and ids else one
                for one in said_of(raw)
            ]
            shown += found
            places += [f"{place}/{index}"] * len(found)
            known = _prompt_key(raw) in self.known
            self.loss.skip("prompt message (stands in history)") if known else self.loss.map("prompt message")
        self.log.show(shown, None, places)

    def _lost_step(self, number: int) -> None:
        """A step whose reply `history` does not hold: the harness took it back and asked again."""
        response = _value(self.steps[number], "response")
        if self.history and isinstance(response, str):
            self.trajectory.reply(
                response,
                {"role": "assistant", "content": response},
                format=NAME,
                status="retried",
                place=f"/trajectory/{number}/response",
                in_context=False,
                model=_model(self.outer),
                keep_wire=True,
            )
            self.loss.map("reply that history lacks")
        self._step(number, None)

    def _pairs(self, replies: list[int]) -> dict[int, int]:
        """Return which step (value) belongs to which reply of history (key): equal responses, in order."""
        paired: dict[int, int] = {}
        number = 0
        for index in replies:
            said = _value(self.history[index], "content")
            for ahead in range(number, len(self.steps)):
                if _value(self.steps[ahead], "response") == said:
                    paired[index] = ahead
                    number = ahead + 1
                    break
        return paired

    def _tools_ran(self, index: int) -> list[str]:
        ids = _value(self.history[index], "tool_call_ids")
        return [label(one) for one in ids] if isinstance(ids, list) else []

    def _message(self, raw: msgspec.Raw, place: str, call_ids: list[str]) -> None:
        parts = raw_members(raw) or {}
        role = _value(raw, "role")
        said_list = said_of(raw)
        if not said_list or not isinstance(role, str):
            self.trajectory.keep("message", text_of(raw), place=place)
            self.loss.keep("message")
            return
        if not _is_reply(raw) and set(parts) - {"role", "content", "tool_call_ids"}:
            self.loss.note("what the harness notes beside a message (agent, message_type, cache_control): not stored")
        for said in said_list:
            if _is_reply(raw):
                self.log.reply(said, text_of(raw), format=CHAT, place=place, at=None, model=_model(self.outer))
            elif said.role == "tool":
                self._answers(said, call_ids or [said.call_id], raw, place)
            elif "is_demo" in parts and value_of(parts["is_demo"]) is True:
                number = self.trajectory.message(role, said.wire, place=place, origin="copied")
                self.log.note(said, number)
            else:
                self.log.add(said, None, place)
        self.loss.map(role)

    def _answers(self, said: Said, call_ids: list[str], raw: msgspec.Raw, place: str) -> None:
        """One tool message may name several calls: each gets it, the text stands in the context once."""
        for index, call_id in enumerate(call_ids):
            wire = {"role": "tool", "tool_call_id": call_id, "content": said.output}
            one = said._replace(call_id=call_id, wire=wire if isinstance(said.output, str) else value_of(raw))
            if index and not self.log.answer(one, None, place):
                self.loss.note("orphan result")
            elif not index:
                self.log.add(one, None, place)

    def _step(self, number: int, reply: msgspec.Raw | None) -> None:
        place = f"/trajectory/{number}"
        parts = dict(raw_members(self.steps[number]) or {})
        parts.pop("query", None)
        prompt = raw_elements(parts.pop("messages")) if "messages" in parts else None
        for index, raw in enumerate(prompt or []):
            self._prompt_message(raw, f"{place}/messages/{index}")
        if reply is not None:
            told = raw_members(reply) or {}
            for name, sources in REPEATED.items():
                if name in parts and any(_same(parts[name], told.get(key)) for key in sources):
                    del parts[name]
        elif self.history:
            parts.pop("response", None)
        else:
            self._reply_of_step(parts, place)
        if parts:
            self.trajectory.keep("step", object_text(parts), place=place)
            self.loss.keep("step")

    def _reply_of_step(self, parts: dict[str, msgspec.Raw], place: str) -> None:
        """A file without history: the step itself is all there is."""
        response = parts.pop("response", None) or parts.pop("thought", None)
        if response is None:
            return
        text = value_of(response)
        said = Said("assistant", {"role": "assistant", "content": text}, text)
        self.log.reply(said, text_of(response), format=NAME, place=place, at=None)
        self.loss.map("assistant")
        if "observation" in parts:
            text = value_of(parts.pop("observation"))
            self.log.add(Said("user", {"role": "user", "content": text}, text), None, f"{place}/observation")
            self.loss.map("user")

    def _prompt_message(self, raw: msgspec.Raw, place: str) -> None:
        key = _prompt_key(raw)
        if key in self.known:
            self.loss.skip("prompt message (stands in history)")
        elif key in self.kept_prompts:
            self.loss.skip("prompt message (kept already)")
        else:
            self.kept_prompts.add(key)
            self.trajectory.keep("prompt message", text_of(raw), place=place)
            self.loss.keep("prompt message")

    def _finish(self) -> None:
        rest = {key: raw for key, raw in self.outer.items() if key not in ("history", "trajectory")}
        if rest:
            self.trajectory.keep("info", object_text(rest), place=WHOLE)
            self.loss.keep("info")
        status = self.info.get("exit_status")
        if status:
            self.trajectory.end(end_status(label(status)), reason=label(status), place="/info/exit_status")
        self.trajectory.settle()


def end_status(status: str) -> EndStatus:
    """Return how a run ended by its exit status; one that was cut off may still have handed something in."""
    return "completed" if status.lower() in ("submitted", "early_exit") else "failed"


def _opening(records: list[msgspec.Raw]) -> Iterator[bytes]:
    for raw in records:
        yield bytes(raw)
        if _is_reply(raw):
            return


def _is_reply(raw: msgspec.Raw) -> bool:
    return _value(raw, "role") == "assistant" and _value(raw, "is_demo") is not True


def _prompt_key(raw: msgspec.Raw) -> str:
    """What a prompt message says, apart from what the harness notes beside it."""
    said = said_of(raw)
    ids = _value(raw, "tool_call_ids")
    return "|".join(one.key for one in said) + (f"|{ids}" if ids else "") if said else sha256(bytes(raw)).hexdigest()


def _value(raw: msgspec.Raw, key: str) -> Any:
    try:
        parts = raw_members(raw)
        return value_of(parts[key]) if parts is not None and key in parts else None
    except NotJson:
        return None


def _same(one: msgspec.Raw, other: msgspec.Raw | None) -> bool:
    return other is not None and value_of(one) == value_of(other)


def _model(outer: dict[str, msgspec.Raw]) -> str:
    """Return the model that a replay configuration names: it is an object, or text that holds one."""
    if "replay_config" not in outer:
        return ""
    config = value_of(outer["replay_config"])
    if isinstance(config, str):
        try:
            config = value_of(msgspec.Raw(config.encode("utf-8", "backslashreplace")))
        except NotJson:
            return ""
    for key in ("agent", "model", "name"):
        config = config.get(key) if isinstance(config, dict) else None
    return config if isinstance(config, str) else ""


IMPORTER: Final = SweAgent()
