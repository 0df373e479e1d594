"""prime-rl SFT: JSON lines with `messages`, or `prompt` + `completion` where earlier replies must not train.

`tools` is JSON text, arguments are the emitted text (its reader parses both). It strips null keys except inside
arguments, and trains what the model sampled: replies of the completion, never tool output.
"""

from __future__ import annotations

from typing import Any, Final

from ..sample import Sample
from .family import FileFacts, JsonLines, spoken

FAMILY: Final = "prime-rl"


class PrimeRlWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._lines = JsonLines(folder, FAMILY)

    def write(self, sample: Sample) -> None:
        for row in rows_of(sample):
            self._lines.add(sample.facts["split"], row)

    def close(self) -> list[FileFacts]:
        return self._lines.close()


def rows_of(sample: Sample) -> list[dict[str, Any]]:
    """Return the lines of one sample: one, unless its mask is neither everything nor everything from some reply on."""
    tools = sample.tools_json
    shown = [spoken(message) for message in sample.messages]
    if sample.whole_mask():
        return [_with_tools({"messages": shown, "sample_id": sample.sample_id}, tools)]
    first = sample.train.index(True)
    rest = [
        flag
        for message, flag in zip(shown[first:], sample.train[first:], strict=True)
        if message["role"] == "assistant"
    ]
    if all(rest):
        pair = {"prompt": shown[:first], "completion": shown[first:], "sample_id": sample.sample_id}
        return [_with_tools(pair, tools)]
    places = [place for place, flag in enumerate(sample.train) if flag]
    return [
        _with_tools(
            {"prompt": shown[:place], "completion": [shown[place]], "sample_id": f"{sample.sample_id}.{number}"}, tools
        )
        for number, place in enumerate(places)
    ]


def _with_tools(row: dict[str, Any], tools: str | None) -> dict[str, Any]:
    return row if tools is None else {**row, "tools": tools}
