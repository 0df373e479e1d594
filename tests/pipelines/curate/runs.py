"""Small runs and lakes for the tests of curation: real chained events, landed as segments, compacted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.pipelines.segments import Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.curate.policy import Loaded, parse_policy
from trajlake.schemas.blobs import offload_payload
from trajlake.schemas.context import ITEMS_START, context_hash, extend_items_hash, item_hash
from trajlake.schemas.events import (
    Compacted,
    ContextBuilt,
    ContextHead,
    MessageAdded,
    ModelReplied,
    ProposedCall,
    RewardAssigned,
    TaskEnded,
    TaskStarted,
    ToolResult,
)

POLICY: dict[str, dict[str, Any]] = {
    "eligibility": {"tenants": ["t"]},
    "outcome": {"statuses": ["completed", "failed", "cancelled", "open"]},
    "reward": {"required": False},
    "models": {"allow": ["m*"]},
    "length": {"replies_min": 1},
    "caps": {"per_task": 0},
}
"""Lets nearly everything in; a test names what it wants otherwise."""
TOOL = {"type": "function", "function": {"name": "run", "description": "", "parameters": {"type": "object"}}}


def policy_text(**tables: dict[str, Any]) -> str:
    """Return a policy's TOML: `POLICY` with the keys of `tables` put over it."""
    whole = {name: {**POLICY.get(name, {}), **tables.get(name, {})} for name in {**POLICY, **tables}}
    lines = ['name = "t"']
    for name, keys in whole.items():
        # A JSON value is a TOML value, but for null, which no key here has.
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def policy(name: str = "policy", **tables: dict[str, Any]) -> Loaded:
    return parse_policy(policy_text(**tables), name)


class Run:
    """One trajectory, written as the runtime would: messages, contexts by extension, replies, results."""

    def __init__(
        self, trajectory_id: str, *, tenant: str = "t", task: Any = None, tools: Sequence[Any] = (TOOL,), **start: Any
    ) -> None:
        self.story = Story(trajectory_id, tenant=tenant)
        self.story.add(
            TaskStarted(
                task=task if task is not None else {"task_id": trajectory_id}, model="m", model_version="1", **start
            )
        )
        self.items: list[Any] = []
        self.hashes: dict[Any, str] = {}
        self.before: tuple[int, list[Any]] | None = None
        tree = list(tools)
        digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
        self.head = ContextHead(tools=digest) if tree else ContextHead()
        self._stored = {digest: tree} if tree else {}

    @property
    def number(self) -> int:
        return len(self.story.landed)

    def say(self, role: str, content: Any, **more: Any) -> Run:
        wire = {"role": role, "content": content, **more}
        self._push(item_hash(wire))
        self._add(MessageAdded(role=role, wire=wire, item_hash=item_hash(wire)))
        return self

    def build(self, purpose: str = "act", items: Sequence[Any] | None = None) -> int:
        shown = self.items if items is None else list(items)
        base, keep = None, 0
        if self.before is not None:
            for one, other in zip(self.before[1], shown, strict=False):
                if one != other:
                    break
                keep += 1
            base = self.before[0] if keep else None
        running = extend_items_hash(ITEMS_START, [self.hashes[ref] for ref in shown])
        number = self.number
        self.story.add(
            ContextBuilt(
                purpose=purpose, base=base, keep=keep if base is not None else 0,
                append=tuple(shown[keep if base is not None else 0 :]), head=self.head, stored=self._stored,
                context_hash=context_hash(self.head, running),
            )
        )  # fmt: skip
        self._stored = {}
        self.before = number, list(shown)
        return number

    def reply(
        self, content: Any, calls: Sequence[tuple[str, str]] = (), *, purpose: str = "act", status: str = "kept",
        model: str = "m-1", items: Sequence[Any] | None = None, raw: str | None = None, join: bool = True, **more: Any,
    ) -> int:  # fmt: skip
        """One model call: its context and its reply. `calls` are (tool, arguments). Returns the reply's number."""
        self.story.turn += 1
        built = self.build(purpose, items)
        number = self.number
        wire: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            wire["tool_calls"] = [
                {"id": f"c{number}_{n}", "type": "function", "function": {"name": tool, "arguments": arguments}}
                for n, (tool, arguments) in enumerate(calls)
            ]
        text = raw if raw is not None else json.dumps(wire)
        proposed = tuple(ProposedCall(tool=tool, provider_id=f"c{number}_{n}",
                                      pointer=f"/tool_calls/{n}/function/arguments")
                         for n, (tool, _) in enumerate(calls))  # fmt: skip
        digest = item_hash(wire)
        self._add(
            ModelReplied(raw=text, format="openai.chat/1", status=status, context=built, item_hash=digest,  # type: ignore[arg-type]
                         served_model=model, calls=proposed, **more)
        )  # fmt: skip
        self.hashes[number] = digest
        if status == "kept" and purpose == "act" and join:
            self.items.append(number)
        return number

    def result(self, reply: int, output: Any, index: int = 0, status: str = "ok", **more: Any) -> Run:
        wire = {"role": "tool", "tool_call_id": f"c{reply}_{index}", "content": output}
        self._push(item_hash(wire))
        self._add(ToolResult(action_id=f"{reply}.{index}", status=status, tool="run", provider_id=f"c{reply}_{index}",  # type: ignore[arg-type]
                             output=output, item_hash=item_hash(wire), **more))  # fmt: skip
        return self

    def compacted(self, reply: int, keep: int = 0) -> Run:
        self.story.add(Compacted(reply=reply, keep=keep))
        self.items[keep:] = [reply]
        return self

    def end(self, status: str = "completed") -> Run:
        self.story.add(TaskEnded(status=status))  # type: ignore[arg-type]
        return self

    def simple(self, words: str = "look around", turns: int = 2) -> Run:
        """A whole small run: a question, `turns` replies with a call, an answer."""
        self.say("system", "You are careful.").say("user", f"Please {words}.")
        for turn in range(turns):
            seq = self.reply(f"{words} {turn}", [("run", json.dumps({"n": turn, "what": words}))])
            self.result(seq, f"output of {words} {turn}")
        self.reply(f"done with {words}")
        return self.end()

    def _push(self, digest: str) -> None:
        self.items.append(self.number)
        self.hashes[self.number] = digest

    def _add(self, payload: Any) -> None:
        payload, blobs = offload_payload(payload)
        self.blobs = [*getattr(self, "blobs", []), *blobs]
        self.story.add(payload)


def rewards(values: dict[str, float | Sequence[float]], verifier: str = "v", version: str = "1", **more: Any) -> Story:
    """Return a judgement trajectory: a value, or several of one verifier, for each trajectory."""
    batch = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()
    story = Story(f"judge/{verifier}/{version or '-'}/{batch}", model="judge", version="")
    story.token = 0
    story.add(TaskStarted(task={}, origin="judgement", model="judge"))
    for name, value in sorted(values.items()):
        for one in [value] if isinstance(value, (int, float)) else value:
            story.add(
                RewardAssigned(
                    tenant="t", trajectory_id=name, verifier=verifier, verifier_version=version, value=str(one), **more
                )
            )
    story.add(TaskEnded(status="completed"))
    return story


def lake_of(folder: Path, runs: Sequence[Run | Story], night: int = 0) -> str:
    """Land runs as one segment and compact; more nights add to the same lake."""
    stories = [one.story if isinstance(one, Run) else one for one in runs]
    landing = folder / "landing"
    for one in runs:
        for blob in getattr(one, "blobs", []):
            place = landing / "blobs" / "t" / blob.sha256[:2] / blob.sha256
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(blob.data)
    land(
        landing,
        hashlib.sha256(f"writer {night}".encode()).digest()[:16],
        0,
        [x for story in stories for x in story.landed],
    )
    report = compact(str(landing), str(folder / "lake"))
    assert report.outcome == "committed", report
    return str(folder / "lake")
