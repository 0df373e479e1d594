"""Events in, candidate rows with features out: the part of curation that reads every payload. Plain functions.

Trajectory by trajectory where order matters (segments), column by column where it does not (masks, hashes, patterns).
What is computed here depends on `ExtractKey` alone, so it is kept and used again the next night.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.schemas.chain import commitment, event_hash, genesis
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import RolledBack, decode_payload

from .candidate import Candidate, candidate, failed
from .contamination import contaminated
from .items import Reading
from .pii import count_pii
from .segments import UndeclaredDiscontinuity, cut

EXTRACT_VERSION: Final = 4
"""Raised with every change of what a candidate row holds: kept rows of another version are not used."""

EVENT_COLUMNS: Final = ("tenant", "trajectory_id", "sequence_number", "event_type", "payload")
CHAIN_COLUMNS: Final = (
    "schema_version",
    "fencing_token",
    "turn",
    "recorded_at",
    "salt",
    "commitment",
    "cryptographic_hash",
)

MASKS: Final = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?", "<time>"),
    (r"\b(call|toolu|chatcmpl|msg|resp|req)_[A-Za-z0-9]+", "<id>"),
    (r"\b\d{10,19}\b", "<number>"),
    (r"\s+", " "),
)  # fmt: skip
"""What exact duplicates may differ in: ids and times."""

LEAKS: Final = (
    r"git\s+(-\S+\s+)*log\b[^|;&]*\s(--all|-S|-G|-p|--patch|--reflog)",
    r"git\s+(-\S+\s+)*(reflog|fsck|rev-list\s+--all)\b",
    r"git\s+(-\S+\s+)*show\s+(-\S+\s+)*[0-9a-f]{7,40}\b",
    r"git\s+(-\S+\s+)*(fetch|pull)\b",
    r"git\s+(-\S+\s+)*(checkout|cherry-pick|diff)\s+(-\S+\s+)*(origin/\S+|[0-9a-f]{12,40})\b",
)
"""Commands that read a fix out of a repository's own history."""

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
    rows: list[Candidate] = []
    for part in _trajectories(events, key.verify_chain):
        rows += _one(part, key, inputs)
    return _features(_frame(rows), key, inputs)


class _Part(NamedTuple):
    """The events of one trajectory, column by column; `chain` holds the columns that its check needs."""

    tenant: str
    trajectory_id: str
    numbers: list[int]
    kinds: list[str]
    payloads: list[str]
    chain: list[list[Any]]


def _trajectories(events: pl.DataFrame, with_chain: bool) -> Iterator[_Part]:
    columns = [events[name].to_list() for name in ("sequence_number", "event_type", "payload")]
    chain: list[list[Any]] = []
    if with_chain:
        chain = [events["recorded_at"].dt.epoch("us").to_list()]
        names = ("schema_version", "fencing_token", "turn", "salt", "cryptographic_hash")
        chain += [events[name].to_list() for name in names]
    runs = events.select(pl.struct("tenant", "trajectory_id").rle().alias("run")).unnest("run")
    at = 0
    for length, place in runs.iter_rows():
        end = at + length
        cut_out = [column[at:end] for column in columns]
        numbers, kinds, payloads = cut_out
        beside = [column[at:end] for column in chain]
        yield _Part(place["tenant"], place["trajectory_id"], numbers, kinds, payloads, beside)
        at = end


def _one(part: _Part, key: ExtractKey, inputs: Inputs) -> list[Candidate]:
    tenant, trajectory_id, numbers, kinds, payloads, _ = part
    head = inputs.heads.get((tenant, trajectory_id), "")

    def refuse(error: str, detail: str) -> list[Candidate]:
        return [failed(tenant, trajectory_id, head, error, detail)]

    if None in payloads:
        return refuse("integrity", "a payload is gone: erased or expired")
    if numbers != list(range(len(numbers))):
        return refuse("integrity", "gap: sequence numbers do not run from 0")
    if key.verify_chain and (broken := _broken(part, head)):
        return refuse("integrity", broken)
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


def _broken(part: _Part, head: str) -> str | None:
    """Return the first breach of the hash chain, None for a whole one."""
    tenant, trajectory_id = part.tenant, part.trajectory_id
    prev = genesis(tenant, trajectory_id)
    for seq, kind, payload, at, version, token, turn, salt, stored in zip(
        part.numbers, part.kinds, part.payloads, *part.chain, strict=True
    ):
        if salt is None:
            return f"payload: event {seq} has no salt"
        made = commitment(bytes.fromhex(salt), payload.encode())
        prev = event_hash(prev, tenant, trajectory_id, seq, kind, version, token, turn, at, made)
        if prev.hex() != stored:
            return f"chain: event {seq} does not hash to what is stored"
    return None if not head or prev.hex() == head else "truncated: the last event is not the head"


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
    masked = pl.col("train_text")
    for pattern, name in MASKS:
        masked = masked.str.replace_all(pattern, name)
    frame = frame.with_columns(masked.alias("masked"))
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in frame["masked"].to_list()]
    leak = pl.lit(None, pl.String)
    if key.leaks:
        suspects = pl.col("call_text").str.contains_any(["git"]) if key.leaks == LEAKS else pl.lit(True)
        leak = pl.when(suspects).then(
            pl.coalesce(*(pl.col("call_text").str.extract(f"({pattern})", 1) for pattern in key.leaks))
        )
    frame = frame.with_columns(
        pl.Series("dup_sha", digests, pl.String),
        leak.alias("leak"),
        _repeated_share(frame).alias("loop_ratio"),
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


def _repeated_share(frame: pl.DataFrame) -> pl.Series:
    """Return, per row, how much of its targets' text is words said before (five at a time); 0 for short texts."""
    shares = []
    for text in frame["train_text"].to_list():
        words = text.split() if len(text) >= 1000 else ()
        if len(words) < 50:
            shares.append(0.0)
            continue
        runs = set(zip(words, words[1:], words[2:], words[3:], words[4:], strict=False))
        shares.append(1.0 - len(runs) / (len(words) - 4))
    return pl.Series("loop_ratio", shares, pl.Float64)


def _tokens(frame: pl.DataFrame, counter: str) -> list[pl.Expr | pl.Series]:
    """Return tokens of the row, of the prompt before its first target, and of each target."""
    from .counting import characters_per_token, counter_of

    per = characters_per_token(counter)
    if per is not None:
        return [
            (pl.col("characters") / per).ceil().cast(pl.Int64).alias("tokens"),
            (pl.col("prompt_characters") / per).ceil().cast(pl.Int64).alias("prompt_tokens"),
            (pl.col("target_characters").list.sum() / per).ceil().cast(pl.Int64).alias("target_tokens"),
        ]
    count = counter_of(counter)
    whole, prompt, target = [], [], []
    for text, places in zip(frame["messages"].to_list(), frame["target_places"].to_list(), strict=True):
        sizes = [count(msgspec.json.encode(one).decode()) for one in msgspec.json.decode(text)] if text else []
        whole.append(sum(sizes))
        prompt.append(sum(sizes[: places[0]]) if places else 0)
        target.append(sum(sizes[place] for place in places))
    return [
        pl.Series("tokens", whole, pl.Int64), pl.Series("prompt_tokens", prompt, pl.Int64),
        pl.Series("target_tokens", target, pl.Int64),
    ]  # fmt: skip


def empty_rows() -> pl.DataFrame:
    """Return a frame of candidate rows, features included, without rows."""
    return _features(_frame([]), ExtractKey(), Inputs({}, lambda _, __: b"", lambda _, __: [], {}))
