"""The same stages written straight in Polars, for the benchmark to measure against: one script, no package of ours.

Read events, cut one row per trajectory, check structure, loops, leaks, secrets and lengths, take exact duplicates out,
split, write OpenAI-shape JSON lines. It takes what it can for granted (one segment per run, one provider's shape); it
keeps no ledger, manifest, pin or hash chain.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

SECRETS = (
    r"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|PRIVATE KEY-----|sk-[A-Za-z0-9-]{32}|xox[abp]-"
    r"|AIza[0-9A-Za-z_-]{35}|eyJ[A-Za-z0-9_-]{8,}\.eyJ"
)
LEAKS = r"git\s+log\b.*(--all|-S)|git\s+show\s+[0-9a-f]{7,40}"


def main(lake: str, out: str) -> float:
    begun = time.perf_counter()
    files = [str(path) for path in Path(lake, "events").rglob("*.parquet")]
    kinds = ["MessageAdded", "ModelReplied", "ToolResult", "ContextBuilt"]
    columns = ["trajectory_id", "sequence_number", "event_type", "payload"]
    rows = 0
    seen: set[str] = set()
    with open(out, "wb") as target:
        # By file and in halves of it, as memory allows: a lake does not fit at once.
        for path in files:
            for part in _parts(path, columns):
                for text, digest in _rows(part.filter(pl.col("event_type").is_in(kinds))):
                    if digest not in seen:
                        seen.add(digest)
                        target.write(text.encode() + b"\n")
                        rows += 1
    seconds = time.perf_counter() - begun
    print(f"{rows} rows in {seconds:.1f} s")
    return seconds


def _parts(path: str, columns: list[str]) -> Iterator[pl.DataFrame]:
    ids = (
        pl.scan_parquet(path, hive_partitioning=False)
        .select("trajectory_id")
        .collect()["trajectory_id"]
        .unique()
        .sort()
    )
    parts = max(1, len(ids) // 2000)
    scan = pl.scan_parquet(path, hive_partitioning=False).select(columns)
    bounds = [ids[len(ids) * n // parts] for n in range(parts)]
    for n, low in enumerate(bounds):
        here = pl.col("trajectory_id") >= low
        if n + 1 < parts:
            here &= pl.col("trajectory_id") < bounds[n + 1]
        yield scan.filter(here).collect()


def _rows(events: pl.DataFrame) -> list[tuple[str, str]]:
    kind, payload = pl.col("event_type"), pl.col("payload")
    items = events.filter(kind != "ContextBuilt").with_columns(
        pl.when(kind == "MessageAdded").then(payload.str.json_path_match("$.wire"))
        .when(kind == "ModelReplied").then(payload.str.json_path_match("$.raw"))
        .otherwise(
            pl.concat_str(pl.lit('{"role":"tool","tool_call_id":"'), payload.str.json_path_match("$.provider_id"),
                          pl.lit('","content":'), payload.str.extract(r'"output":("(?:[^"\\]|\\.)*")', 1), pl.lit("}"))
        ).alias("message"),
        pl.when(kind == "ModelReplied").then(payload.str.json_path_match("$.served_model")).alias("model"),
    )  # fmt: skip
    raw = pl.col("message")
    items = items.with_columns(
        pl.when(kind == "ModelReplied").then(raw.str.json_path_match("$.content")).alias("said"),
        pl.when(kind == "ModelReplied").then(raw.str.json_path_match("$.tool_calls[0].function.name")).alias("tool"),
        pl.when(kind == "ModelReplied")
        .then(raw.str.json_path_match("$.tool_calls[0].function.arguments")).alias("arguments"),
        pl.when(kind == "ModelReplied").then(raw.str.json_path_match("$.tool_calls[0].id")).alias("call"),
        pl.when(kind == "ToolResult").then(payload.str.json_path_match("$.provider_id")).alias("answers"),
        payload.str.contains(SECRETS).alias("secret"),
    ).sort("trajectory_id", "sequence_number")  # fmt: skip
    tools = events.filter(kind == "ContextBuilt").group_by("trajectory_id").agg(
        payload.str.extract(r'"stored":\{"[0-9a-f]+":(\[.*\])\}', 1).drop_nulls().first().alias("tools")
    )  # fmt: skip
    runs = items.group_by("trajectory_id", maintain_order=True).agg(
        pl.concat_str(pl.lit("["), raw.str.join(","), pl.lit("]")).first().alias("messages"),
        pl.concat_str("said", "tool", "arguments", separator="\n", ignore_nulls=True).str.join("\n").alias("trained"),
        (pl.col("call").drop_nulls().n_unique() == pl.col("answers").drop_nulls().n_unique()).alias("paired"),
        (pl.concat_str("tool", "arguments").drop_nulls().rle().struct.field("len").max() >= 4).alias("loop"),
        pl.col("arguments").str.contains(LEAKS).any().alias("leak"),
        pl.col("secret").any(),
        (kind == "ModelReplied").sum().alias("replies"),
        pl.col("model").drop_nulls().n_unique().alias("models"),
        raw.str.len_bytes().sum().alias("size"),
    ).join(tools, on="trajectory_id", how="left")  # fmt: skip
    kept = runs.filter(
        pl.col("paired") & ~pl.col("loop").fill_null(False) & ~pl.col("leak").fill_null(False) & ~pl.col("secret")
        & (pl.col("replies") >= 2) & (pl.col("models") == 1)
    )  # fmt: skip
    masked = pl.col("trained")
    for pattern, name in ((r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>"), (r"\d{4}-\d{2}-\d{2}T[\d:.]+Z?", "<time>"),
                          (r"\b(call|toolu)_\w+", "<id>"), (r"\b\d{10,19}\b", "<n>"), (r"\s+", " ")):  # fmt: skip
        masked = masked.str.replace_all(pattern, name)
    kept = kept.with_columns(
        masked.alias("masked"),
        pl.concat_str(
            pl.lit('{"messages":'), "messages", pl.lit(',"tools":'), pl.col("tools").fill_null("[]"), pl.lit("}")
        ).alias("line"),
    ).sort("trajectory_id")  # fmt: skip
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in kept["masked"].to_list()]
    return list(zip(kept["line"].to_list(), digests, strict=True))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
