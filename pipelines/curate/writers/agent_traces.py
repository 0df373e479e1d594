"""Hugging Face agent traces: one JSON-lines file a row, a `session` line and then one `message` line each.

Calls are `toolCalls` with arguments as the emitted text; `training` says which replies are targets.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from ..sample import Sample
from .family import FileFacts, facts_of

FAMILY: Final = "agent-traces"


class AgentTracesWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._folder = folder
        self._files: list[FileFacts] = []

    def write(self, sample: Sample) -> None:
        relative = f"{FAMILY}/{sample.facts['split']}/{sample.sample_id}.jsonl"
        path = os.path.join(self._folder, relative)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lines = list(lines_of(sample))
        with open(path, "wb") as file:
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
        self._files.append(facts_of(self._folder, relative, len(lines)))

    def close(self) -> list[FileFacts]:
        return sorted(self._files, key=lambda one: one.path)


def lines_of(sample: Sample) -> list[dict[str, Any]]:
    """Return the lines of one sample."""
    session: dict[str, Any] = {
        "type": "session",
        "harness": "trajlake",
        "id": sample.sample_id,
        "name": sample.facts["task_id"] or sample.facts["trajectory_id"],
    }
    if sample.tools is not None:
        session["tools"] = sample.tools
    lines = [session]
    for message, flag in zip(sample.messages, sample.train, strict=True):
        shown: dict[str, Any] = {"role": message["role"], "content": message.get("content") or ""}
        if message.get("reasoning_content"):
            shown["reasoning"] = message["reasoning_content"]
        if message.get("tool_calls"):
            shown["toolCalls"] = [
                {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                for call in message["tool_calls"]
            ]
        if message.get("tool_call_id") is not None:
            shown["toolCallId"] = message["tool_call_id"]
        lines.append({"type": "message", "message": shown, "training": flag})
    return lines
