"""Events in, candidate rows with features out: the part of curation that reads every payload. Plain functions.

Trajectory by trajectory where order matters (segments), column by column where it does not (masks, hashes, patterns).
What is computed here depends on `ExtractKey` alone, so it is kept and used again the next night.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.schemas.chain import genesis
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import RolledBack, decode_payload

from .candidate import Candidate, candidate, failed
from .contamination import contaminated
from .items import KINDS_READ, Reading
from .pii import count_pii
from .segments import UndeclaredDiscontinuity, cut

EXTRACT_VERSION: Final = 5
"""Raised with every change of what a candidate row holds: kept rows of another version are not used."""

EVENT_COLUMNS: Final = ("tenant", "trajectory_id", "sequence_number", "event_type", "payload")
CHAIN_COLUMNS: Final = (
    "schema_version",
    "fencing_token",
    "turn",
    "recorded_at",
    "salt",
    "cryptographic_hash",
)

MASKS: Final = (
    (r"[^\S ]\s*| \s+", " "),
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?", "<time>"),
    (r"\b(call|toolu|chatcmpl|msg|resp|req)_[A-Za-z0-9]+", "<id>"),
    (r"\b\d{10,19}\b", "<number>"),
)  # fmt: skip
"""What exact duplicates may differ in: white space, ids and times. The first leaves one space between words."""

LEAKS: Final = (
    r"git\s+(-\S+\s+)*log\b[^|;&]*\s(--all|-S|-G|-p|--patch|--reflog)",
    r"git\s+(-\S+\s+)*(reflog|fsck|rev-list\s+--all)\b",
    r"git\s+(-\S+\s+)*show\s+(-\S+\s+)*[0-9a-f]{7,40}\b",
    r"git\s+(-\S+\s+)*(fetch|pull)\b",
    r"git\s+(-\S+\s+)*(checkout|cherry-pick|diff)\s+(-\S+\s+)*(origin/\S+|[0-9a-f]{12,40})\b",
)
"""Commands that read a fix out of a repository's own history."""

SHARE_BYTES: Final = 8 * 1024 * 1024
"""Text whose words are in memory at once, each in a row of its own."""

SIGNATURE_SIZE: Final = 112
"""MinHash values of a row: 14 bands of 8."""

PLAIN: Final = {str: pl.String, int: pl.Int64, bool: pl.Boolean, float: pl.Float64}


class ExtractKey(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that candidate rows depend on. Its hash names the directory where they are kept."""

    version: int = EXTRACT_VERSION
    verify_chain: bool = True
    imports_are_cut: bool = False
    leaks: tuple[str, ...] = ()
    counter: str = "characters/4"
    evaluations: tuple[str, ...] = ()
    words: int = 13
    signatures: bool = False
    pii: str = "off"

    def name(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:24]


class Inputs(NamedTuple):
    """What extraction needs beside events: evaluation texts, blobs, and the ancestors of branches."""

    evaluations: Mapping[str, bytes]
    fetch: Callable[[str, str], bytes]
    ancestors: Callable[[str, str], list[tuple[int, list[tuple[int, str, str]]]]]
    heads: Mapping[tuple[str, str], str]
    verify: frozenset[tuple[str, str]] | None = None


def extract(events: pl.DataFrame, key: ExtractKey, inputs: Inputs) -> pl.DataFrame:
    """Return the candidate rows of the trajectories in `events` (whole, in order), by row key and segment.

    A trajectory without a row of its own has one with `segment_no` -1 that says why.
    """
    broken = broken_chains(events, inputs.heads) if key.verify_chain else {}
    rows: list[Candidate] = []
    for part in _trajectories(events):
        rows += _one(part, key, inputs, broken)
    return _features(_frame(rows), key, inputs)


class _Part(NamedTuple):
    """The events of one trajectory that a row stands on, column by column; `whole`: numbers run from 0, no gap."""

    tenant: str
    trajectory_id: str
    numbers: list[int]
    kinds: list[str]
    payloads: list[str]
    whole: bool


def _trajectories(events: pl.DataFrame) -> Iterator[_Part]:
    runs = events.select(
        pl.struct("tenant", "trajectory_id").rle_id().alias("run"), "tenant", "trajectory_id", "sequence_number",
        "event_type", "payload",
    )  # fmt: skip
    facts = runs.group_by("run", maintain_order=True).agg(
        pl.col("tenant").first(),
        pl.col("trajectory_id").first(),
        (pl.col("sequence_number") == pl.int_range(pl.len())).all().alias("whole"),
    )
    # Most events are no part of a row: they never become Python objects. A missing payload must be seen, though.
    read = runs.filter(pl.col("event_type").is_in(KINDS_READ) | pl.col("payload").is_null())
    counts = read.group_by("run", maintain_order=True).len()
    beside = facts.select("run").join(counts, on="run", how="left", maintain_order="left")
    lengths = beside["len"].fill_null(0).to_list()
    columns = [read[name].to_list() for name in ("sequence_number", "event_type", "payload")]
    at = 0
    for length, (_, tenant, trajectory_id, whole) in zip(lengths, facts.iter_rows(), strict=True):
        numbers, kinds, payloads = (column[at : at + length] for column in columns)
        yield _Part(tenant, trajectory_id, numbers, kinds, payloads, whole)
        at += length


def _one(part: _Part, key: ExtractKey, inputs: Inputs, broken: Mapping[tuple[str, str], str]) -> list[Candidate]:
    tenant, trajectory_id, numbers, kinds, payloads, whole = part
    head = inputs.heads.get((tenant, trajectory_id), "")

    def refuse(error: str, detail: str) -> list[Candidate]:
        return [failed(tenant, trajectory_id, head, error, detail)]

    if None in payloads:
        return refuse("integrity", "a payload is gone: erased or expired")
    if not whole:
        return refuse("integrity", "gap: sequence numbers do not run from 0")
    if (tenant, trajectory_id) in broken:
        return refuse("integrity", broken[tenant, trajectory_id])
    reading = Reading(lambda digest: inputs.fetch(tenant, digest))
    try:
        for up, ancestor in inputs.ancestors(tenant, trajectory_id) if "Branched" in kinds else ():
            reading.read(ancestor, up)
        reading.read(zip(numbers, kinds, payloads, strict=True), 0, given_up_numbers(numbers, kinds, payloads))
        segments = cut(reading, imports_are_cut=key.imports_are_cut)
    except UndeclaredDiscontinuity as error:
        return refuse("undeclared_discontinuity", str(error))
    except (SchemaError, msgspec.MsgspecError) as error:
        return refuse("integrity", f"{type(error).__name__}: {error}")
    if not segments:
        return refuse("no_replies", "no kept reply of its own")
    found = [candidate(tenant, trajectory_id, head, reading, segment) for segment in segments]
    last = max(reading.replies, key=lambda reply: reply.seq).seq
    for row in found:
        row.is_last = last in row.target_seqs
    return found


def given_up_numbers(numbers: list[int], kinds: list[str], payloads: list[str]) -> frozenset[int]:
    if "RolledBack" not in kinds:
        return frozenset()
    covered: set[int] = set()
    for kind, payload in zip(kinds, payloads, strict=True):
        if kind == "RolledBack":
            body = decode_payload(kind, payload)
            assert isinstance(body, RolledBack)
            covered |= set(range(body.to + 1, body.from_ + 1))
    return frozenset(covered & set(numbers))


def broken_chains(events: pl.DataFrame, heads: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Return what is wrong with the hash chain of each trajectory that has not a whole one.

    Every event is hashed onto the stored hash of the one before it; all equal means that the chain is whole. The text
    of design/events.md, *Hash chain*, is put together column by column; only the hashing is done one by one.
    """
    made = _hashes(events.select(pl.concat_str("salt", "payload", separator="\n")).to_series())
    number = events.select(pl.struct("tenant", "trajectory_id").rle_id()).to_series()
    first = number.diff().fill_null(1) != 0
    begun = events.filter(first).select("tenant", "trajectory_id")
    starts = pl.Series([genesis(*place).hex() for place in begun.iter_rows()], dtype=pl.String).gather(number)
    before = pl.when(first).then(starts).otherwise(pl.col("cryptographic_hash").shift())
    chain = events.select(
        pl.concat_str(
            before, "tenant", "trajectory_id", "sequence_number", "event_type", "schema_version", "fencing_token",
            "turn", pl.col("recorded_at").dt.epoch("us"), made, separator="\n",
        )
    ).to_series()  # fmt: skip
    wrong = events.filter(~pl.col("cryptographic_hash").eq_missing(_hashes(chain)))
    found = {
        (tenant, name): f"chain: event {seq} does not hash to what is stored"
        for tenant, name, seq in wrong.select("tenant", "trajectory_id", "sequence_number").reverse().iter_rows()
    }
    last = events.filter(first.shift(-1, fill_value=True)).select("tenant", "trajectory_id", "cryptographic_hash")
    for tenant, name, digest in last.iter_rows():
        if heads.get((tenant, name)) and heads[tenant, name] != digest:
            found.setdefault((tenant, name), "truncated: the last event is not the head")
    return found


def _hashes(texts: pl.Series) -> pl.Series:
    """Return the SHA-256 of each text, null where there is none."""
    data = texts.cast(pl.Binary).to_list()
    return pl.Series([None if one is None else sha256(one).hexdigest() for one in data], dtype=pl.String)


def _frame(rows: list[Candidate]) -> pl.DataFrame:
    columns = {name: [getattr(row, name) for row in rows] for name in Candidate.__struct_fields__}
    return pl.DataFrame(columns, schema=candidate_schema(), strict=True)


def candidate_schema() -> dict[str, Any]:
    """Return the columns of `Candidate` as Polars types."""
    kinds = {
        "str": pl.String, "str | None": pl.String, "int": pl.Int64, "bool": pl.Boolean,
        "list[str]": pl.List(pl.String), "list[int]": pl.List(pl.Int64), "list[bool]": pl.List(pl.Boolean),
    }  # fmt: skip
    return {name: kinds[Candidate.__annotations__[name]] for name in Candidate.__struct_fields__}


def _features(frame: pl.DataFrame, key: ExtractKey, inputs: Inputs) -> pl.DataFrame:
    """Add what is computed column by column, and drop the texts that only served it."""
    spaced = masked(frame["train_text"], MASKS[:1])
    frame = frame.with_columns(masked(spaced, MASKS[1:]).alias("masked"))
    leak = pl.lit(None, pl.String)
    if key.leaks:
        suspects = pl.col("call_text").str.contains_any(["git"]) if key.leaks == LEAKS else pl.lit(True)
        leak = pl.when(suspects).then(
            pl.coalesce(*(pl.col("call_text").str.extract(f"({pattern})", 1) for pattern in key.leaks))
        )
    frame = frame.with_columns(
        _hashes(frame["masked"]).alias("dup_sha"),
        leak.alias("leak"),
        _repeated_share(spaced).alias("loop_ratio"),
        pl.col("messages").str.len_bytes().cast(pl.Int64).alias("characters"),
    )
    frame = frame.with_columns(*_tokens(frame, key.counter))
    found = contaminated(frame["messages"], inputs.evaluations, key.words) if inputs.evaluations else None
    frame = frame.with_columns(pl.Series("contaminated", found or [None] * len(frame), pl.String))
    frame = frame.with_columns(pl.Series("pii", count_pii(frame["messages"], key.pii), pl.String))
    signatures: list[list[int] | None] = [None] * len(frame)
    if key.signatures:
        from .near_duplicates import signatures_of

        signatures = list(signatures_of(frame["masked"].to_list()))
    frame = frame.with_columns(pl.Series("signature", signatures, pl.List(pl.UInt32)))
    return frame.drop("masked", "train_text", "call_text").sort("row_key", "segment_no")


def masked(texts: pl.Series, masks: Sequence[tuple[str, str]] = MASKS) -> pl.Series:
    """Return the texts without what exact duplicates may differ in."""
    for pattern, name in masks:
        texts = texts.str.replace_all(pattern, name)
    return texts


def _repeated_share(texts: pl.Series) -> pl.Series:
    """Return, per text of words with one space between, how much of it is words said before (five at a time); 0 for
    short texts. Words are compared by hash, and so are runs of five."""
    frame = texts.alias("text").to_frame().with_row_index("row")
    long = frame.filter(pl.col("text").str.len_chars() >= 1000)
    part = pl.col("text").str.len_bytes().cast(pl.Int64).cum_sum() // SHARE_BYTES
    found = [pl.DataFrame(schema={"row": pl.UInt32, "share": pl.Float64})]
    found += [_shares(one) for one in long.with_columns(part.alias("part")).partition_by("part", include_key=False)]
    return frame.join(pl.concat(found), on="row", how="left", maintain_order="left")["share"].fill_null(0.0)


def _shares(texts: pl.DataFrame) -> pl.DataFrame:
    words = texts.select("row", pl.col("text").str.split(" ")).explode("text").filter(pl.col("text") != "")
    word = pl.col("text").hash()
    run = word
    for place in range(1, 5):
        run = run * 31 + word.shift(-place)
    whole = pl.col("row").shift(-4) == pl.col("row")
    runs = words.select("row", run.alias("run"), whole.alias("whole")).filter("whole")
    counted = runs.group_by("row").agg(pl.col("run").n_unique().alias("different"), pl.len().alias("runs"))
    share = pl.when(pl.col("runs") >= 46).then(1.0 - pl.col("different") / pl.col("runs"))
    return counted.select("row", share.alias("share"))


def _tokens(frame: pl.DataFrame, counter: str) -> list[pl.Expr | pl.Series]:
    """Return tokens of the row, and of the prompt before its first target."""
    from .counting import characters_per_token, counter_of

    per = characters_per_token(counter)
    if per is not None:
        return [
            (pl.col("characters") / per).ceil().cast(pl.Int64).alias("tokens"),
            (pl.col("prompt_characters") / per).ceil().cast(pl.Int64).alias("prompt_tokens"),
        ]
    count = counter_of(counter)
    whole, prompt = [], []
    for text, places in zip(frame["messages"].to_list(), frame["target_places"].to_list(), strict=True):
        sizes = [count(msgspec.json.encode(one).decode()) for one in msgspec.json.decode(text)] if text else []
        whole.append(sum(sizes))
        prompt.append(sum(sizes[: places[0]]) if places else 0)
    return [
        pl.Series("tokens", whole, pl.Int64), pl.Series("prompt_tokens", prompt, pl.Int64),
    ]  # fmt: skip


def empty_rows() -> pl.DataFrame:
    """Return a frame of candidate rows, features included, without rows."""
    return _features(_frame([]), ExtractKey(), Inputs({}, lambda _, __: b"", lambda _, __: [], {}))
