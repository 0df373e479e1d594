"""The same stages written straight in Polars, for the benchmark to measure against: one script, no package of ours.

Read events, check the hash chain, look for secrets (base64 forms too), cut context segments by what each prompt
extends, end each row with its last reply, check structure, arguments, loops (calls and words), leaks and lengths, take
exact duplicates out, write the canonical table and OpenAI-shape JSON lines. The benchmark checks that its lines say
what ours say. It takes for granted what it can (one segment per run, one provider's shape, every model allowed) and
leaves out what ours must do beside: a ledger row for each drop, hashes of rows and files, manifest, pin, rewards, caps
and splits, explanations, other providers' shapes, noted scans and kept rows for the next night.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

BEGINNINGS = (
    "AKIA", "ASIA", "ghp_", "gho_", "ghs_", "glpat-", "xoxb-", "xoxp-", "sk-proj-", "sk-ant-", "sk_live_", "rk_live_",
    "AIza", "hf_", "npm_", "eyJ", "PRIVATE KEY", "sk-", "password", "secret", "api_key",
)  # fmt: skip
LEAKS = (
    r"git\s+(-\S+\s+)*log\b[^|;&]*\s(--all|-S|-G|-p|--patch|--reflog)|git\s+(-\S+\s+)*(reflog|fsck|rev-list\s+--all)\b"
    r"|git\s+(-\S+\s+)*show\s+(-\S+\s+)*[0-9a-f]{7,40}\b|git\s+(-\S+\s+)*(fetch|pull)\b"
    r"|git\s+(-\S+\s+)*(checkout|cherry-pick|diff)\s+(-\S+\s+)*(origin/\S+|[0-9a-f]{12,40})\b"
)
CHAIN = ["schema_version", "fencing_token", "turn", "recorded_at", "salt", "cryptographic_hash"]
COLUMNS = ["trajectory_id", "sequence_number", "event_type", "payload", *CHAIN]
MASKS = ((r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>"), (r"\d{4}-\d{2}-\d{2}T[\d:.]+Z?", "<time>"),
         (r"\b(call|toolu)_\w+", "<id>"), (r"\b\d{10,19}\b", "<n>"), (r"\s+", " "))  # fmt: skip
TENANT = "default"


def forms(text: str) -> list[str]:
    """Return what a text leaves in base64, at each alignment."""
    found = [base64.b64encode(b"\0" * shift + text.encode()).decode() for shift in range(3)]
    return [
        one[(0, 2, 3)[shift] : (shift + len(text)) * 8 // 6]
        for shift, one in enumerate(found)
        if (shift + len(text)) * 8 // 6 - (0, 2, 3)[shift] >= 4
    ]


SECRETS = "|".join([*BEGINNINGS, *(form.replace("+", r"\+") for one in BEGINNINGS for form in forms(one))])


def main(lake: str, out: str) -> float:
    begun = time.perf_counter()
    files = [str(path) for path in Path(lake, "events").rglob("*.parquet")]
    rows = 0
    seen: set[str] = set()
    table: pq.ParquetWriter | None = None
    with open(out, "wb") as target:
        for path in files:
            for part in _parts(path):
                made = _rows(part)
                fresh = [place for place, digest in enumerate(made["digest"].to_list()) if digest not in seen]
                seen.update(made["digest"].to_list())
                made = made[fresh]
                for line in made["line"].to_list():
                    target.write(line.encode() + b"\n")
                arrow: pa.Table = made.drop("line", "masked").to_arrow()
                table = table or pq.ParquetWriter(f"{out}.parquet", arrow.schema, compression="zstd")
                table.write_table(arrow, row_group_size=256)
                rows += len(made)
    if table is not None:
        table.close()
    seconds = time.perf_counter() - begun
    print(f"{rows} rows in {seconds:.1f} s")
    return seconds


def _parts(path: str) -> Iterator[pl.DataFrame]:
    """Yield a file in parts of about a thousand runs: a lake does not fit in memory at once."""
    ids = pl.scan_parquet(path, hive_partitioning=False).select("trajectory_id").collect()["trajectory_id"]
    ids = ids.unique().sort()
    parts = max(1, len(ids) // 1000)
    scan = pl.scan_parquet(path, hive_partitioning=False).select(COLUMNS)
    bounds = [ids[len(ids) * n // parts] for n in range(parts)]
    for n, low in enumerate(bounds):
        here = pl.col("trajectory_id") >= low
        if n + 1 < parts:
            here &= pl.col("trajectory_id") < bounds[n + 1]
        yield scan.filter(here).collect()


def _broken(events: pl.DataFrame) -> pl.Series:
    """Return the runs whose hash chain does not hold."""
    texts = events.select(pl.concat_str("salt", "payload", separator="\n"))["salt"].to_list()
    made = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    ids = events["trajectory_id"].unique(maintain_order=True).to_list()
    starts = [hashlib.sha256(f"trajlake chain 1\n{TENANT}\n{name}".encode()).hexdigest() for name in ids]
    begun = pl.DataFrame({"trajectory_id": ids, "start": starts})
    chained = events.join(begun, on="trajectory_id", how="left", maintain_order="left").select(
        "trajectory_id", "cryptographic_hash",
        pl.concat_str(
            pl.when(pl.col("sequence_number") == 0).then("start").otherwise(pl.col("cryptographic_hash").shift()),
            pl.lit(TENANT), "trajectory_id", "sequence_number", "event_type", "schema_version", "fencing_token",
            "turn", pl.col("recorded_at").dt.epoch("us"), pl.Series("made", made), separator="\n",
        ).alias("text"),
    )  # fmt: skip
    hashed = [hashlib.sha256(text.encode()).hexdigest() for text in chained["text"].to_list()]
    return chained.filter(pl.Series(hashed) != pl.col("cryptographic_hash"))["trajectory_id"].unique()


def _extended(events: pl.DataFrame) -> pl.DataFrame:
    """Return, per run, whether every prompt extends the one before it, and the tools shown."""
    payload = pl.col("payload").str
    built = events.filter(pl.col("event_type") == "ContextBuilt").select(
        "trajectory_id", "sequence_number",
        payload.json_path_match("$.base").cast(pl.Int64).alias("base"),
        payload.json_path_match("$.keep").cast(pl.Int64).fill_null(0).alias("keep"),
        payload.extract(r'"append":\[([0-9,]*)\]', 1).str.split(",").list.len().cast(pl.Int64).alias("added"),
        payload.extract(r'"stored":\{"[0-9a-f]+":(\[.*\])\}', 1).alias("tools"),
        payload.json_path_match("$.head.tools").alias("head"),
    )  # fmt: skip
    length = (pl.col("keep") + pl.col("added")).shift().over("trajectory_id")
    before = pl.col("sequence_number").shift().over("trajectory_id")
    first = before.is_null()
    ok = first | ((pl.col("base") == before) & (pl.col("keep") == length))
    checked = built.with_columns(ok.alias("ok"))
    return checked.group_by("trajectory_id").agg(
        (pl.col("ok").all() & (pl.col("head").n_unique() == 1)).alias("one_segment"),
        pl.col("tools").drop_nulls().first(),
    )


def _items(events: pl.DataFrame) -> pl.DataFrame:
    kind, payload = pl.col("event_type"), pl.col("payload")
    items = events.filter(kind.is_in(["MessageAdded", "ModelReplied", "ToolResult"])).with_columns(
        pl.when(kind == "MessageAdded").then(payload.str.json_path_match("$.wire"))
        .when(kind == "ModelReplied").then(payload.str.json_path_match("$.raw"))
        .otherwise(
            pl.concat_str(pl.lit('{"role":"tool","tool_call_id":"'), payload.str.json_path_match("$.provider_id"),
                          pl.lit('","content":'), payload.str.extract(r'"output":("(?:[^"\\]|\\.)*")', 1), pl.lit("}"))
        ).alias("message"),
        payload.str.json_path_match("$.item_hash").alias("item_hash"),
        pl.when(kind == "ModelReplied").then(payload.str.json_path_match("$.served_model")).alias("model"),
        pl.when(kind == "ToolResult").then(payload.str.json_path_match("$.status")).alias("status"),
    )  # fmt: skip
    raw = pl.col("message")
    reply = kind == "ModelReplied"
    items = items.with_columns(
        pl.when(reply).then(raw.str.json_path_match("$.content")).alias("said"),
        pl.when(reply).then(raw.str.json_path_match("$.tool_calls[0].function.name")).alias("tool"),
        pl.when(reply).then(raw.str.json_path_match("$.tool_calls[0].function.arguments")).alias("arguments"),
        pl.when(reply).then(raw.str.json_path_match("$.tool_calls[0].id")).alias("call"),
        pl.when(kind == "ToolResult").then(payload.str.json_path_match("$.provider_id")).alias("answers"),
    )
    whole = pl.col("arguments").str.json_path_match("$").str.starts_with("{")
    return items.with_columns(whole.alias("whole")).sort("trajectory_id", "sequence_number")


def _said_before(texts: pl.Series) -> pl.Series:
    """Return how much of each text is words said before, five at a time; 0 for short texts."""
    frame = texts.alias("text").to_frame().with_row_index("row")
    words = frame.filter(pl.col("text").str.len_chars() >= 1000).select(
        "row", pl.col("text").str.replace_all(r"[^\S ]\s*| \s+", " ").str.split(" ").alias("word")
    )
    word = pl.col("word").hash()
    run = (((word * 31 + word.shift(-1)) * 31 + word.shift(-2)) * 31 + word.shift(-3)) * 31 + word.shift(-4)
    runs = words.explode("word").filter(pl.col("word") != "").select(
        "row", run.alias("run"), (pl.col("row").shift(-4) == pl.col("row")).alias("whole")
    )  # fmt: skip
    counted = runs.filter("whole").group_by("row").agg((1 - pl.col("run").n_unique() / pl.len()).alias("share"))
    return frame.join(counted, on="row", how="left", maintain_order="left")["share"].fill_null(0.0)


def _rows(events: pl.DataFrame) -> pl.DataFrame:
    secret = events.filter(pl.col("payload").str.contains(SECRETS))["trajectory_id"].unique()
    broken = _broken(events)
    kind, raw = pl.col("event_type"), pl.col("message")
    answered = pl.col("call").shift().over("trajectory_id")
    items = _items(events).with_columns(
        (pl.col("answers").is_null() | (pl.col("answers") == answered)).alias("paired"),
        (pl.col("status").shift(-1).fill_null("ok") == "ok").alias("worked"),
        pl.col("sequence_number").filter(kind == "ModelReplied").max().over("trajectory_id").alias("last"),
    )
    items = items.filter(pl.col("sequence_number") <= pl.col("last"))
    runs = items.group_by("trajectory_id", maintain_order=True).agg(
        pl.concat_str(pl.lit("["), raw.str.join(","), pl.lit("]")).first().alias("messages"),
        pl.concat_str("said", "tool", "arguments", separator="\n", ignore_nulls=True).str.join("\n").alias("trained"),
        pl.col("paired").all(),
        (pl.concat_str("tool", "arguments").drop_nulls().rle().struct.field("len").max() >= 4).alias("loop"),
        pl.col("arguments").str.contains(LEAKS).any().alias("leak"),
        (kind == "ModelReplied").sum().alias("replies"),
        pl.col("model").drop_nulls().unique().alias("models"),
        ((kind == "ModelReplied") & pl.col("whole") & pl.col("worked")).alias("train"),
        pl.col("item_hash"),
        pl.col("sequence_number").alias("sequence_numbers"),
        pl.when(kind == "ModelReplied").then(raw.str.len_bytes()).sum().alias("target_size"),
        raw.str.len_bytes().sum().alias("size"),
    )  # fmt: skip
    runs = runs.join(_extended(events), on="trajectory_id", how="left")
    kept = runs.filter(
        pl.col("paired") & ~pl.col("loop").fill_null(False) & ~pl.col("leak").fill_null(False)
        & (_said_before(runs["trained"]) < 0.82) & (pl.col("replies") >= 2)
        & (pl.col("models").list.len() == 1) & pl.col("one_segment")
        & ~pl.col("trajectory_id").is_in(secret.implode()) & ~pl.col("trajectory_id").is_in(broken.implode())
    )  # fmt: skip
    masked = pl.col("trained")
    for pattern, name in MASKS:
        masked = masked.str.replace_all(pattern, name)
    kept = kept.with_columns(
        masked.alias("masked"),
        pl.concat_str(
            pl.lit('{"messages":'), "messages", pl.lit(',"tools":'), pl.col("tools").fill_null("[]"), pl.lit("}")
        ).alias("line"),
    ).sort("trajectory_id")  # fmt: skip
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in kept["masked"].to_list()]
    return kept.with_columns(pl.Series("digest", digests))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
