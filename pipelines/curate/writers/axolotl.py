"""Axolotl: JSON lines with `training` on every message, `tools`, arguments as the emitted text.

Its `remove_none_values` deletes nulls in objects, so arguments must be text: a null in them is then data no reader
touches.
"""

from __future__ import annotations

from typing import Any, Final

from ..sample import Sample
from .family import FileFacts, JsonLines, spoken

FAMILY: Final = "axolotl"


class AxolotlWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._lines = JsonLines(folder, FAMILY)

    def write(self, sample: Sample) -> None:
        messages = [
            {**spoken(message), "training": flag} for message, flag in zip(sample.messages, sample.train, strict=True)
        ]
        row: dict[str, Any] = {"messages": messages, "sample_id": sample.sample_id}
        if sample.tools is not None:
            row["tools"] = sample.tools
        self._lines.add(sample.facts["split"], row)

    def close(self) -> list[FileFacts]:
        return self._lines.close()
