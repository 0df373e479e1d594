"""Selection: the stages in order, from every trajectory of a snapshot to the rows of a set, with one funnel."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import polars as pl

from .extract import LEAKS, ExtractKey
from .funnel import Funnel
from .kept import Kept, Run
from .policy import Loaded, Policy
from .sources import TRUNCATED_REASONS, Sources
from .stages import admission, balance, clean, content, repeats, verdicts

KEY = ["tenant", "trajectory_id"]


class Chosen(NamedTuple):
    """The rows that stay (light columns, by `sample_key`), where their texts are kept, and how it came to that."""

    rows: pl.DataFrame
    kept: Kept
    funnel: Funnel
    read_anew: int


def extract_key(loaded: Loaded) -> ExtractKey:
    """Return what candidate rows depend on of a policy."""
    policy = loaded.policy
    built_in = LEAKS if policy.leak.built_in else ()
    return ExtractKey(
        verify_chain=policy.integrity.verify_chain,
        imports_are_cut=policy.integrity.undeclared == "imports are cut",
        leaks=(*built_in, *policy.leak.patterns),
        counter=policy.length.counter,
        evaluations=tuple(f"{name} {digest}" for name, digest in loaded.input_hashes.items()),
        words=policy.contamination.words,
        signatures=policy.duplicates.near,
        pii=policy.pii.finder,
    )


def admitted(sources: Sources, loaded: Loaded, kept: Kept, funnel: Funnel, run: Run | None) -> tuple[pl.DataFrame, int]:
    """Stages 1 to 2, with rewards, task counts and `truncated` joined on; and how many trajectories were read anew."""
    policy = loaded.policy
    everything = sources.trajectories(policy.split.group)
    rows = admission.eligible(everything, policy, funnel)
    read_anew = kept.bring(sources.snapshot, rows, loaded.evaluations, run)
    light = kept.features(rows, ["error", "detail", "is_last", "stop_reason"])
    errors = light.filter((pl.col("segment_no") < 0) & pl.col("error").is_in(["integrity", "undeclared_discontinuity"]))
    rows = admission.whole(rows, errors.select(*KEY, "error", "detail"), funnel)
    judgements = sources.judgements()
    rows = admission.replayed(rows, _replays(judgements), policy, funnel)
    cut = light.filter(pl.col("is_last")).select(
        *KEY, pl.col("stop_reason").is_in(TRUNCATED_REASONS).alias("truncated")
    ).unique(KEY, keep="any")  # fmt: skip
    rows = rows.join(cut, on=KEY, how="left", maintain_order="left").with_columns(pl.col("truncated").fill_null(False))
    rows = rows.join(verdicts.rewards(judgements, everything, policy), on=KEY, how="left", maintain_order="left")
    return rows, read_anew


def pass_rates(trajectories: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """Return per task: attempts that were judged, those that passed, and by which models."""
    judged = trajectories.filter(pl.col("reward").is_not_null())
    return judged.group_by("task_key").agg(
        pl.len().cast(pl.Int64).alias("pass_n"),
        (pl.col("reward") >= policy.reward.minimum).sum().cast(pl.Int64).alias("pass_k"),
        pl.col("model_id").unique().sort().str.join(", ").alias("pass_policy"),
    )


def flaky_tasks(trajectories: pl.DataFrame) -> pl.Series:
    """Return the tasks on one of whose trajectories a verifier gave two verdicts."""
    return trajectories.filter(pl.col("flipped").fill_null(False))["task_key"].unique().sort()


def choose(sources: Sources, loaded: Loaded, run: Run | None = None) -> Chosen:
    """Run every stage of an SFT set and return the rows that stay."""
    policy = loaded.policy
    funnel = Funnel()
    kept = Kept(sources.lake, extract_key(loaded))
    trajectories, read_anew = admitted(sources, loaded, kept, funnel, run)
    flaky = flaky_tasks(trajectories)
    rates = pass_rates(trajectories, policy)
    trajectories = admission.ended(trajectories, policy, funnel)
    trajectories = verdicts.rewarded(trajectories, policy, funnel)
    trajectories = verdicts.healthy(trajectories, flaky, policy, funnel)
    facts = trajectories.select(
        *KEY, "head_hash", "task_id", "task_key", "split_group", "reward", "verifier", "verifier_version", "truncated"
    ).join(rates, on="task_key", how="left", maintain_order="left")
    rows = kept.features(trajectories).join(facts, on=[*KEY, "head_hash"], how="inner", maintain_order="left")
    rows = rows.with_columns(
        (pl.col("row_key") + pl.format("{}", "segment_no").str.zfill(8)).alias("sample_key"),
        pl.col("target_seqs").alias("reply_seqs"),
    )
    rows = content.clean_of_leaks(rows, funnel)
    rows = content.well_formed(rows, policy, funnel)
    rows = content.without_loops(rows, policy, funnel)
    rows = content.of_length(rows, policy, funnel)
    rows = content.masked(rows, policy, funnel)
    rows = scrubbed(rows, sources, policy, funnel)
    rows = clean.without_pii(rows, policy, funnel)
    rows = repeats.without_copies(rows, funnel)
    rows = repeats.without_near_copies(rows, policy, funnel, lambda some: train_texts(kept, some))
    rows = repeats.uncontaminated(rows, policy, funnel)
    rows = balance.capped(rows, policy, funnel)
    rows = balance.split(rows, policy, funnel)
    return Chosen(rows, kept, funnel, read_anew)


def scrubbed(rows: pl.DataFrame, sources: Sources, policy: Policy, funnel: Funnel, unit: str = "rows") -> pl.DataFrame:
    """Stage 11 with its inputs: the ledger's findings, and which trajectories have been scanned at this head."""
    heads = sources.scanned_heads().unique().with_columns(pl.lit(True).alias("scanned"))
    rows = rows.join(heads, on=[*KEY, "head_hash"], how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("scanned").fill_null(False))
    lineage = sources.lineage(sources.trajectories("task"))
    return clean.without_secrets(clean.with_findings(rows, sources.findings(), lineage), policy, funnel, unit)


def train_texts(kept: Kept, some: pl.DataFrame) -> list[str]:
    """Return what the targets of `some` rows emitted, ids and times masked, in the rows' order."""
    from .extract import masked

    if not len(some):
        return []
    keys = sorted(some["row_key"].to_list())
    low, high = keys[0], keys[-1] + "g"
    whole = kept.rows(some.select("tenant", "trajectory_id", "head_hash"), low, high)
    texts: dict[tuple[str, int], str] = {}
    places = some.select(*KEY, "segment_no", "target_places")
    wanted = whole.join(places, on=[*KEY, "segment_no"], how="inner")
    for key, number, messages, places in wanted.select(
        "row_key", "segment_no", "messages", "target_places"
    ).iter_rows():
        tree = msgspec.json.decode(messages)
        texts[key, number] = "\n".join(msgspec.json.encode(tree[place]).decode() for place in places)
    column = pl.Series([texts[row] for row in some.select("row_key", "segment_no").iter_rows()], dtype=pl.String)
    return masked(column).to_list()


def _replays(judgements: pl.DataFrame) -> pl.DataFrame:
    """Return tenant, trajectory_id and the newest replay verdict, out of annotations labelled `replay`."""
    found = judgements.filter((pl.col("kind") == "annotation") & (pl.col("label") == "replay")).sort(
        "recorded_at", "trajectory_id", "sequence_number"
    )
    verdict = pl.when(pl.col("text").str.starts_with("same")).then(pl.lit("same")).otherwise(pl.lit("differs"))
    return (
        found.select(
            pl.col("judged_tenant").alias("tenant"),
            pl.col("judged_trajectory_id").alias("trajectory_id"),
            verdict.alias("replay"),
        )
        .group_by(KEY, maintain_order=True)
        .last()
    )
