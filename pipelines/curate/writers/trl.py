"""TRL, two sets that must not be mixed: `messages` (trains every reply, with assistant_only_loss=True) and
`prompt` + `completion` (one row for each trained reply, trains the completion alone).

Messages and tools are `List(Json)`, declared in the file: no key of another row appears, nulls in arguments stay.
A sample with replies that must not train is not in the first set (`mask`), all of its trained ones are in the second.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import pyarrow as pa

from ..sample import Sample
from .family import FileFacts, ParquetRows, count, spoken, texts, with_objects

_LIST: Final = {"feature": {"_type": "Json"}, "_type": "List"}
_TEXT: Final = {"dtype": "string", "_type": "Value"}
Arguments = Literal["object", "text"]


def schema_of(lists: tuple[str, ...], values: tuple[str, ...] = ("sample_id",)) -> pa.Schema:
    """Return a schema of JSON lists and texts that `datasets` reads as what they are."""
    features = dict.fromkeys(lists, _LIST) | dict.fromkeys(values, _TEXT)
    fields = [pa.field(name, pa.list_(pa.json_())) for name in lists] + [pa.field(n, pa.string()) for n in values]
    return pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})


class TrlWriter:
    """`arguments`: templates differ (TRAINING.md, A4); objects are what most of TRL's templates read."""

    def __init__(self, folder: str, arguments: Arguments = "object") -> None:
        self.refused: dict[str, int] = {}
        self._arguments = arguments
        name = self.family = "trl" if arguments == "object" else "trl-text"
        self._messages = ParquetRows(folder, f"{name}-messages", schema_of(("messages", "tools")))
        self._pairs = ParquetRows(folder, f"{name}-prompt-completion", schema_of(("prompt", "completion", "tools")))

    def write(self, sample: Sample) -> None:
        messages = self._shown(sample)
        if messages is None:
            count(self.refused, "arguments")
            return
        tools = None if sample.tools is None else texts(sample.tools)
        shown = texts(messages)
        split, size = sample.facts["split"], sum(map(len, shown))
        if sample.whole_mask():
            row = {"messages": shown, "tools": tools, "sample_id": sample.sample_id}
            self._messages.add(split, row, size)
        else:
            count(self.refused, "mask")
        for number, place in enumerate(place for place, flag in enumerate(sample.train) if flag):
            self._pairs.add(
                split,
                {
                    "prompt": shown[:place],
                    "completion": [shown[place]],
                    "tools": tools,
                    "sample_id": f"{sample.sample_id}.{number}",
                },
                sum(map(len, shown[: place + 1])),
            )

    def close(self) -> list[FileFacts]:
        return [*self._messages.close(), *self._pairs.close()]

    def _shown(self, sample: Sample) -> list[dict[str, Any]] | None:
        shown = []
        for message in map(spoken, sample.messages):
            made = with_objects(message) if self._arguments == "object" else message
            if made is None:
                return None
            shown.append(made)
        return shown
