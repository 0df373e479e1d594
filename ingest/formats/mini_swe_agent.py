"""mini-swe-agent trajectories: `.traj.json` of version 1 and 1.1, and the bare message lists of its tests.

The provider's response stands verbatim in a message's `extra.response` (or is the message itself, for the
Responses API); it is the reply's `raw`. Commands in a fenced block are text, not calls: only tool-call models
give calls. Identity: the instance and a hash of everything up to the first reply, so that two runs stay apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource
from trajlake.schemas.events.life import EndStatus

from ..sources import Source
from .build import Trajectory, first_record_hash, label, record_tree, session_id, time_us
from .chat_shapes import Said, said_all, said_of
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, first_value, read_document, refuse, safe_stem
from .json_text import is_absent, object_text, raw_elements, raw_members, text_of, value_of
from .openai_parts import NO_RAW, usage_of
from .prompts import PromptLog
from .usage import responses_usage

NAME: Final = "mini-swe-agent"
CHAT: Final = "openai.chat/1"
RESPONSES: Final = "openai.responses/1"
TOLD_EXTRA: Final = ("response", "timestamp", "cost")
COMPLETED: Final = frozenset({"submitted"})
_INFO_FIRST: Final = re.compile(rb'\{\s*"info"\s*:\s*\{\s*"(exit_status|model_stats|submission)"')
"""How a file begins whose submission is too long for the head to show more."""


class MiniSweAgent:
    """The importer `mini-swe-agent`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:
        if b'"mini-swe-agent-1' in head or (b'"mini_version"' in head and b'"exit_status"' in head):
            return 95
        start = head.lstrip()[:2048]
        if _INFO_FIRST.match(start) and name.endswith((".traj.json", ".json")):
            return 85
        if name.endswith(".traj.json") and start.startswith(b"[") and b'"role"' in start:
            return 85
        value = first_value(head)
        is_list = isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]
        return 75 if is_list and b"mswea_bash_command" in head and b"<returncode>" in head else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        raw = read_document(source)
        outer = raw_members(raw)
        messages = raw_elements(raw if outer is None else outer.get("messages", NO_RAW))
        if not messages or (outer is not None and "trajectory_format" not in outer and "info" not in outer):
            raise refuse(source, "holds no mini-swe-agent messages")
        ready: list[Item] = []
        run = _Run(source, loss, ready, outer or {}, messages, "/messages" if outer is not None else "")
        for step in run.steps():
            step()
            yield from ready
            ready.clear()
        run.finish(options.ended)
        yield from ready


class _Run:
    def __init__(
        self,
        source: Source,
        loss: Loss,
        ready: list[Item],
        outer: dict[str, msgspec.Raw],
        messages: list[msgspec.Raw],
        base: str,
    ) -> None:
        self.loss, self.outer, self.messages, self.base = loss, outer, messages, base
        info = value_of(outer["info"]) if "info" in outer else {}
        self.info: dict[str, Any] = info if isinstance(info, dict) else {}
        self.last_said: Any = None
        opening = self._opening()
        instance = (
            label(value_of(outer["instance_id"])) if "instance_id" in outer else safe_stem(source).removesuffix(".traj")
        )
        session = f"{instance}-{sha256(opening).hexdigest()[:12]}"
        self.trajectory = Trajectory(
            session_id(NAME, session, source.name, "/instance_id"),
            ImportSource(
                format=NAME,
                session=session,
                first_record_hash=first_record_hash(opening),
                producer=NAME,
                producer_version=label(self.info.get("mini_version")),
            ),
            ready.append,
            loss,
            agent=NAME,
        )
        self.trajectory.place = WHOLE
        config = self.info.get("config")
        model = config.get("model") if isinstance(config, dict) else None
        if isinstance(model, dict):
            self.trajectory.model = label(model.get("model_name"))
            if isinstance(model.get("model_kwargs"), dict) and model["model_kwargs"]:
                self.trajectory.sampling = record_tree(model["model_kwargs"])
                self.trajectory.set_head("parameters", model["model_kwargs"])
        self.log = PromptLog(self.trajectory)

    def _opening(self) -> bytes:
        taken = []
        for raw in self.messages:
            taken.append(bytes(raw))
            parts = raw_members(raw) or {}
            if "object" in parts or ("role" in parts and value_of(parts["role"]) == "assistant"):
                break
        return b"\n".join(taken)

    def steps(self) -> Iterator[Any]:
        """Yield one thunk for each message, in order."""
        for index, raw in enumerate(self.messages):
            yield lambda raw=raw, index=index: self._message(raw, f"{self.base}/{index}")

    def _message(self, raw: msgspec.Raw, place: str) -> None:
        parts = raw_members(raw) or {}
        extra_raw = parts.get("extra", NO_RAW)
        extra = ({} if is_absent(extra_raw) else raw_members(extra_raw)) or {}
        at = time_us(value_of(extra["timestamp"])) if "timestamp" in extra else None
        role = value_of(parts["role"]) if "role" in parts else None
        bare = msgspec.Raw(object_text(parts, without=("extra",)).encode("utf-8", "surrogateescape"))
        if role == "assistant" or ("object" in parts and value_of(parts["object"]) == "response"):
            self._reply(parts, bare, extra, at, place)
        elif role == "exit":
            self._keep("exit", raw, at, place)
            return
        elif not (said_list := said_of(bare)):
            self._keep("message", raw, at, place)
            return
        else:
            for said in said_list:
                self.last_said = said.output if said.role == "tool" else said.text
                self.log.add(said, at, place)
            self.loss.map(label(role) or "tool")
        if rest := set(extra) - set(TOLD_EXTRA):
            told = [key for key in extra if key not in rest]
            self.trajectory.keep("extra", object_text(extra, without=told), at=at, place=f"{place}/extra")
            self.loss.keep("extra")

    def _reply(
        self,
        parts: dict[str, msgspec.Raw],
        bare: msgspec.Raw,
        extra: dict[str, msgspec.Raw],
        at: int | None,
        place: str,
    ) -> None:
        responses = "output" in parts and "role" not in parts
        body = bare if responses else extra.get("response", bare)
        told = value_of(body)
        told = told if isinstance(told, dict) else {}
        if responses:
            found = [said for said in said_all(raw_elements(parts["output"]) or []) if said.role == "assistant"]
        else:
            found = said_of(bare)
        said = found[0] if found else Said("assistant", value_of(bare))
        usage = responses_usage(told.get("usage")) if responses else usage_of(told.get("usage"))
        cost = value_of(extra["cost"]) if "cost" in extra else (told.get("usage") or {}).get("cost")
        choices = told.get("choices")
        reason = choices[0].get("finish_reason") if isinstance(choices, list) and choices else told.get("status")
        same = body is bare and not responses and said.wire == value_of(bare)
        self.log.reply(
            said,
            text_of(body),
            format=RESPONSES if responses else CHAT,
            at=at if at is not None else time_us(told.get("created", told.get("created_at"))),
            place=place,
            keep_wire=not same,
            usage=usage,
            model=label(told.get("model")) or self.trajectory.model,
            stop_reason=label(reason) if reason is not None else None,
            response_id=label(told.get("id")),
            cost={"usd": str(cost)} if isinstance(cost, (int, float)) and not isinstance(cost, bool) else {},
        )
        self.loss.map("assistant")

    def _keep(self, kind: str, raw: msgspec.Raw, at: int | None, place: str) -> None:
        self.trajectory.keep(kind, text_of(raw), at=at, place=place)
        self.loss.keep(kind)

    def finish(self, ended: bool) -> None:
        """Keep what stands around the messages, and end the trajectory where the run says that it is over."""
        status = self.info.get("exit_status")
        rest = {key: raw for key, raw in self.outer.items() if key != "messages"}
        if not self.outer:
            self.trajectory.settle()
            return
        if not status and not ended:
            self.loss.hold("info")
            self.trajectory.settle()
            return
        submission = self.info.get("submission")
        repeated = isinstance(submission, str) and submission != "" and submission == self.last_said
        if repeated:
            info = raw_members(rest["info"]) or {}
            rest["info"] = msgspec.Raw(object_text(info, without=("submission",)).encode("utf-8", "surrogateescape"))
            self.loss.note("submission is the last message: stored once")
        self.trajectory.keep("info", object_text(rest), place=WHOLE)
        self.loss.keep("info")
        if status:
            self.trajectory.end(
                end_status(label(status)), result=None if repeated else submission, reason=label(status), place="/info"
            )
        self.trajectory.settle()


def end_status(status: str) -> EndStatus:
    """Return how a run ended by its exit status: handed in is completed, everything else failed."""
    return "completed" if status.lower().startswith(tuple(COMPLETED)) else "failed"


IMPORTER: Final = MiniSweAgent()
