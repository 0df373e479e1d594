"""verl SFT: Parquet read by pandas, `messages` and `tools` as lists of structs. It trains every assistant message.

Structs of one list share their keys, so nulls fill what a message lacks; `tools` whose parameters differ in keys would
gain keys that nobody wrote. Samples that do not come back as they went in are refused: `tools`, `mask`, `content`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from ..sample import Sample
from .family import FileFacts, ParquetRows, count, spoken

_CALL: Final = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
MESSAGE: Final = pa.struct(
    [
        ("role", pa.string()), ("content", pa.string()), ("reasoning_content", pa.string()),
        ("tool_calls", pa.list_(_CALL)), ("tool_call_id", pa.string()),
    ]
)  # fmt: skip


class VerlSftWriter:
    """The tools' struct type is that of the first sample; one with other tools goes to a file of its own."""

    family = "verl-sft"

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._folder = folder
        self._files: dict[str, ParquetRows] = {}
        self._kinds: dict[str, pa.DataType | None] = {}

    def write(self, sample: Sample) -> None:
        if not sample.whole_mask():
            count(self.refused, "mask")
            return
        messages = [spoken(message) for message in sample.messages]
        if not all(isinstance(message["content"], str) for message in messages):
            count(self.refused, "content")
            return
        text = sample.tools_json or ""
        if text not in self._kinds:
            self._kinds[text] = _type_of(sample.tools)
        kind = self._kinds[text]
        if kind is None:
            count(self.refused, "tools")
            return
        rows = self._files.get(str(kind))
        if rows is None:
            schema = pa.schema([("messages", pa.list_(MESSAGE)), ("tools", kind), ("sample_id", pa.string())])
            name = "verl-sft" if not self._files else f"verl-sft-{len(self._files)}"
            rows = self._files[str(kind)] = ParquetRows(self._folder, name, schema)
        rows.add(
            sample.facts["split"],
            {"messages": messages, "tools": sample.tools, "sample_id": sample.sample_id},
            sum(len(str(message["content"])) for message in messages),
        )

    def close(self) -> list[FileFacts]:
        return [facts for rows in self._files.values() for facts in rows.close()]


def _type_of(tools: list[dict[str, Any]] | None) -> pa.DataType | None:
    """Return the struct type under which tools come back as they are; None if there is none."""
    if not tools:
        return pa.list_(pa.struct([("type", pa.string())]))
    try:
        array = pa.array([tools])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    back = array.to_pylist()[0]
    same = json.dumps(back, sort_keys=True) == json.dumps(tools, sort_keys=True)
    return array.type if same and not _has_empty_struct(array.type) else None


def _has_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(kind.field(n).type) for n in range(kind.num_fields))
    return pa.types.is_list(kind) and _has_empty_struct(kind.value_type)
