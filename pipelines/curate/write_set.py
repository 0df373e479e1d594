"""Writing: the chosen rows, in order of their ids, into the canonical table and each family's own file.

Texts are read in ranges of row keys, so memory is that of a range, and every file's bytes depend on its rows alone:
not on how ranges, parts or workers were cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from .counting import Counter, counter_of
from .kept import Kept
from .policy import Loaded
from .prefix_check import Template
from .redaction import redact
from .sample import ROW_SCHEMA, Sample, sample_of
from .writers.family import FileFacts, ParquetRows, Writer

RANGE_CHARACTERS: Final = 48 * 1024 * 1024
"""Text of the rows that are in memory at once."""

STAGES_ONLY: Final = (
    "item_seqs", "prompt_seqs", "reply_seqs", "secret_seqs", "blobs", "signature", "target_seqs", "target_models",
    "target_systems", "target_failed", "target_bad",
)  # fmt: skip
"""Lists that no writer reads."""

DROPPED_SCHEMA: Final[dict[str, Any]] = {
    "tenant": pl.String, "trajectory_id": pl.String, "segment_no": pl.Int64, "_reason": pl.String, "_detail": pl.String,
}  # fmt: skip


class Written(NamedTuple):
    """What was written: files, the root over rows, and rows that went at the last moment (`dropped`)."""

    files: list[FileFacts]
    row_root: str
    rows: int
    tokens: int
    target_tokens: int
    dropped: pl.DataFrame
    splits: dict[str, int]
    members: list[tuple[str, str]]


class _Tally:
    def __init__(self) -> None:
        self.root = hashlib.sha256(b"trajlake rows 1")
        self.rows = self.tokens = self.target_tokens = 0
        self.dropped: list[tuple[str, str, int, str, str]] = []
        self.splits: dict[str, int] = {}
        self.members: set[tuple[str, str]] = set()


def write_set(folder: str, rows: pl.DataFrame, kept: Kept, loaded: Loaded, writers: list[Writer]) -> Written:
    """Write the canonical table `rows/` and every family below `folder`."""
    table = ParquetRows(folder, "rows", ROW_SCHEMA)
    template = Template(loaded.template, loaded.policy.prefix.arguments) if loaded.template else None
    tally = _Tally()
    count = counter_of(loaded.policy.length.counter)
    for row in whole_rows(rows, kept):
        for sample in _samples(row, loaded, template, tally):
            _take(sample, table, writers, tally, count)
    files = table.close()
    for writer in writers:
        files += writer.close()
    gone = pl.DataFrame(
        tally.dropped, orient="row",
        schema=DROPPED_SCHEMA,
    )  # fmt: skip
    return Written(
        files, tally.root.hexdigest(), tally.rows, tally.tokens, tally.target_tokens, gone,
        dict(sorted(tally.splits.items())), sorted(tally.members),
    )  # fmt: skip


def whole_rows(rows: pl.DataFrame, kept: Kept) -> Iterator[dict[str, Any]]:
    """Yield the chosen rows with their texts, by row key and segment."""
    ordered = rows.drop(STAGES_ONLY, strict=False).sort("row_key", "segment_no")
    sizes = ordered["characters"].to_list()
    keys = ordered["row_key"].to_list()
    first = 0
    while first < len(keys):
        last, size = first, 0
        while last < len(keys) and (size < RANGE_CHARACTERS or keys[last] == keys[last - 1]):
            size += sizes[last]
            last += 1
        part = ordered[first:last]
        high = keys[last] if last < len(keys) else "g"
        texts = kept.rows(part, keys[first], high).drop("head_hash", "row_key")
        joined = part.join(texts, on=["tenant", "trajectory_id", "segment_no"], how="inner", maintain_order="left")
        yield from joined.iter_rows(named=True)
        first = last


def _samples(row: dict[str, Any], loaded: Loaded, template: Template | None, tally: _Tally) -> Iterator[Sample]:
    sample = sample_of(row, loaded.sha256)
    reason: str | None = None
    detail = ""
    if row["secret_kinds"] or (row["pii"] and loaded.policy.pii.action == "redact"):
        reason = redact(sample, loaded.policy, secret=bool(row["secret_kinds"]), pii=bool(row["pii"]))
    made: list[Sample] = [sample]
    if reason is None and template is not None:
        made, reason, detail = _rendered(sample, template)
    if reason is not None:
        tally.dropped.append((row["tenant"], row["trajectory_id"], row["segment_no"], reason, detail))
        return
    tally.members.add((row["tenant"], row["trajectory_id"]))
    yield from made


def _rendered(sample: Sample, template: Template) -> tuple[list[Sample], str | None, str]:
    """Return the row itself, or one row per step where the template does not keep its prefixes."""
    sample.facts["template_sha"] = template.sha256
    verdict = template.check(sample)
    if verdict.kept:
        return [sample], None, ""
    if verdict.refused:
        return [], "template_refuses", verdict.refused
    steps = list(sample.steps())
    for step in steps:
        found = template.check(step)
        if not found.kept:
            return [], "template_refuses", found.refused or "its own prompt is no prefix of a single step"
    return steps, None, ""


def row_digest(row: dict[str, Any]) -> bytes:
    """Return the hash of a row: its facts as JSON, LF, its messages as they stand in the table."""
    messages = row["messages_json"]
    facts = {name: value for name, value in row.items() if name != "messages_json"}
    return hashlib.sha256(msgspec.json.encode(facts) + b"\n" + messages.encode()).digest()


def _take(sample: Sample, table: ParquetRows, writers: list[Writer], tally: _Tally, count: Counter) -> None:
    sizes = [count(text.decode()) for text in sample.texts]
    sample.facts["tokens"] = sum(sizes)
    sample.facts["target_tokens"] = sum(size for size, flag in zip(sizes, sample.train, strict=True) if flag)
    row = sample.as_row()
    split = row["split"]
    table.add(split, row, len(row["messages_json"]))
    tally.root.update(row_digest(row))
    tally.rows += 1
    tally.tokens += row["tokens"]
    tally.target_tokens += row["target_tokens"]
    tally.splits[split] = tally.splits.get(split, 0) + 1
    for writer in writers:
        writer.write(sample)
