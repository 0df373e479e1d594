"""OpenAI-shape JSON lines: `messages`, `tools`, `parallel_tool_calls`. Arguments stay the emitted text.

`weight` 0 marks assistant messages that are context. The last message is the last trained reply.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..sample import REPLY, Sample
from .family import FileFacts, JsonLines, spoken_text

FAMILY: Final = "openai"


class _Calls(msgspec.Struct):
    tool_calls: list[msgspec.Raw] = []


_calls: Final = msgspec.json.Decoder(_Calls).decode


class OpenAiWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._lines = JsonLines(folder, FAMILY)

    def write(self, sample: Sample) -> None:
        self._lines.add_line(sample.facts["split"], line_of(sample))

    def close(self) -> list[FileFacts]:
        return self._lines.close()


def line_of(sample: Sample) -> bytes:
    """Return the line of one sample."""
    shown = []
    parallel = False
    for text, flag in zip(sample.texts, sample.train, strict=True):
        is_reply = text.startswith(REPLY)
        calls = len(_calls(text).tool_calls) if is_reply else 0
        parallel |= calls > 1
        said = text if calls else spoken_text(text)
        shown.append(said[:-1] + b',"weight":0}' if is_reply and not flag else said)
    line = b'{"messages":[' + b",".join(shown) + b"]"
    if sample.tools_json is None:
        return line + b"}"
    tools = sample.tools_json.encode()
    return b"".join((line, b',"tools":', tools, b',"parallel_tool_calls":', b"true}" if parallel else b"false}"))
