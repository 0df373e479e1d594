"""OpenAI-shape JSON lines: `messages`, `tools`, `parallel_tool_calls`. Arguments stay the emitted text.

`weight` 0 marks assistant messages that are context. The last message is the last trained reply.
"""

from __future__ import annotations

from typing import Any, Final

from ..sample import Sample
from .family import FileFacts, JsonLines, spoken

FAMILY: Final = "openai"


class OpenAiWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._lines = JsonLines(folder, FAMILY)

    def write(self, sample: Sample) -> None:
        self._lines.add(sample.facts["split"], row_of(sample))

    def close(self) -> list[FileFacts]:
        return self._lines.close()


def row_of(sample: Sample) -> dict[str, Any]:
    """Return the line of one sample."""
    messages = []
    for message, flag in zip(sample.messages, sample.train, strict=True):
        shown = message if message.get("tool_calls") else spoken(message)
        messages.append({**shown, "weight": 0} if message["role"] == "assistant" and not flag else shown)
    row: dict[str, Any] = {"messages": messages}
    if sample.tools is not None:
        row["tools"] = sample.tools
        row["parallel_tool_calls"] = any(len(one.get("tool_calls") or ()) > 1 for one in messages)
    return row
