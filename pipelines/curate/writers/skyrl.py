"""SkyRL SFT: it trains the last assistant message, so each trained reply is a row that ends with it.

`tools` is JSON text; arguments are the emitted text. The cost of step rows is the prompt, once for each reply.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ..sample import Sample
from .family import FileFacts, ParquetRows, spoken_text
from .trl import schema_of

FAMILY: Final = "skyrl"
SCHEMA: Final[pa.Schema] = schema_of(("messages",), ("tools", "sample_id"))


class SkyRlWriter:
    family = FAMILY

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._rows = ParquetRows(folder, FAMILY, SCHEMA)

    def write(self, sample: Sample) -> None:
        shown = [spoken_text(text).decode() for text in sample.texts]
        for number, place in enumerate(place for place, flag in enumerate(sample.train) if flag):
            row: dict[str, Any] = {
                "messages": shown[: place + 1],
                "tools": sample.tools_json,
                "sample_id": f"{sample.sample_id}.{number}",
            }
            self._rows.add(sample.facts["split"], row, sum(map(len, row["messages"])))

    def close(self) -> list[FileFacts]:
        return self._rows.close()
