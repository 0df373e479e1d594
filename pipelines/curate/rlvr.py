"""RLVR tasks: one row for each task that is sometimes solved, with its prompt, environment, verifier and pass rate.

A task's prompt is the first context of its attempts, which no reply is part of. Where attempts saw different prompts
the one of the smallest trajectory id stands, and their number is said. No answer is in it: ground truth, gold actions
and verifier arguments stand in columns of their own, and a prompt or tool that holds one of them is `answer_in_prompt`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import polars as pl
import pyarrow as pa

from trajlake.pipelines.lakehouse.lake import Lake

from .cut import Cut, CutOptions, complete, finish, fresh_sources, manifest_members, new_folder, run_of
from .funnel import Funnel
from .kept import Kept
from .manifest import Manifest
from .policy import Loaded, Policy
from .select import KEY, admitted, extract_key, flaky_tasks, pass_rates, scrubbed
from .sources import Sources, pointer
from .stages import balance, repeats, verdicts
from .write_set import DROPPED_SCHEMA, Written, whole_rows
from .writers.family import FileFacts, ParquetRows
from .writers.registry import RLVR, check_families

TASK_SCHEMA: Final = pa.schema(
    [
        pa.field("task_key", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("trajectory_id", pa.string(), nullable=False),
        pa.field("journal_head", pa.string(), nullable=False),
        pa.field("prompt_json", pa.string(), nullable=False),
        pa.field("prompt_variants", pa.int64(), nullable=False),
        pa.field("tools_json", pa.string()),
        pa.field("environment_json", pa.string()),
        pa.field("verifier", pa.string(), nullable=False),
        pa.field("verifier_version", pa.string(), nullable=False),
        pa.field("verifier_arguments_json", pa.string()),
        pa.field("ground_truth_json", pa.string()),
        pa.field("pass_n", pa.int64(), nullable=False),
        pa.field("pass_k", pa.int64(), nullable=False),
        pa.field("pass_policy", pa.string(), nullable=False),
        pa.field("split_group", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
)
ANSWER_CHARACTERS_MIN: Final = 8
"""Shorter ground truths ("42") are in most prompts by chance; they are not looked for."""


class Task(msgspec.Struct, kw_only=True):
    """One task. `facts` are the columns of `TASK_SCHEMA` that are no trees."""

    prompt: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    environment: Any
    verifier_arguments: Any
    ground_truth: Any
    facts: dict[str, Any]


def cut_rlvr(lake: str, loaded: Loaded, out: str | None, options: CutOptions) -> Cut:
    """Cut a set of RLVR tasks from the newest snapshot (or a given one) into the new folder `out`."""
    families = check_families(options.families, list(RLVR))
    opened = Lake.open(lake)
    sources = fresh_sources(opened, options)
    tasks, kept, funnel, read_anew = choose_tasks(sources, loaded, options)
    if options.dry_run:
        return Cut(funnel, None, read_anew, len(tasks))
    target = new_folder(out)
    manifest = write_rlvr(target, sources, loaded, tasks, kept, funnel, families, options.pin)
    finish(opened, sources, loaded, manifest, kept, target, manifest_members(target))
    return Cut(funnel, manifest, read_anew, manifest.rows)


def choose_tasks(sources: Sources, loaded: Loaded, options: CutOptions) -> tuple[pl.DataFrame, Kept, Funnel, int]:
    """Return the tasks that stay, each with the attempt whose prompt stands for it."""
    policy = loaded.policy
    funnel = Funnel()
    kept = Kept(sources.lake, extract_key(loaded))
    trajectories, read_anew = admitted(sources, loaded, kept, funnel, run_of(options))
    flaky = flaky_tasks(trajectories)
    judged = pl.when(pl.col("reward").is_null()).then(pl.lit("no_reward"))
    attempts = funnel.sift(4, "reward", trajectories, judged, unit="trajectories")
    attempts = verdicts.healthy(attempts, flaky, policy, funnel)
    rates = pass_rates(attempts, policy)
    light = kept.features(attempts).filter((pl.col("segment_no") == 0) & pl.col("error").is_null())
    facts = attempts.join(rates, on="task_key", how="left")
    rows = light.join(
        facts.select(*KEY, "head_hash", "task_id", "task_key", "split_group", "reward", "verifier", "verifier_version",
                     "reward_details", "truncated", "pass_n", "pass_k", "pass_policy"),
        on=[*KEY, "head_hash"], how="inner", maintain_order="left",
    )  # fmt: skip
    rows = rows.sort("task_key", "tenant", "trajectory_id")
    variants = rows.group_by("task_key").agg(
        pl.col("context_prompt").n_unique().cast(pl.Int64).alias("prompt_variants")
    )
    tasks = rows.unique("task_key", keep="first", maintain_order=True).join(variants, on="task_key", how="left")
    tasks = tasks.with_columns(
        pl.col("task_key").alias("sample_key"), pl.lit([], pl.List(pl.Int64)).alias("reply_seqs"),
        pl.col("prompt_seqs").alias("item_seqs"),
    )  # fmt: skip
    tasks = scrubbed(tasks, sources, policy, funnel, unit="tasks")
    tasks = repeats.uncontaminated(tasks, policy, funnel, unit="tasks")
    tasks = balance.solvable(tasks, policy, funnel)
    return balance.split(tasks.drop("segment_no"), policy, funnel).with_columns(
        pl.lit(0, pl.Int64).alias("segment_no")
    ), kept, funnel, read_anew  # fmt: skip


def tasks_of(rows: pl.DataFrame, kept: Kept, policy: Policy) -> Iterator[Task]:
    """Yield the tasks of chosen rows, by row key."""
    rule = policy.tasks
    for row in whole_rows(rows, kept):
        details = msgspec.json.decode(row["reward_details"]) if row["reward_details"] else None
        facts = {name: row[name] for name in TASK_SCHEMA.names if name in row}
        facts["journal_head"] = row["head_hash"]
        yield Task(
            prompt=msgspec.json.decode(row["messages"])[: row["target_places"][0]],
            tools=None if row["tools"] is None else msgspec.json.decode(row["tools"]),
            environment=_named(details, rule.environment),
            verifier_arguments=_named(details, rule.verifier_arguments),
            ground_truth=_named(details, rule.ground_truth),
            facts=facts,
        )


def _named(details: Any, path: str) -> Any:
    return pointer(details, path) if path.startswith("/") else (path or None)


def answer_in(task: Task) -> str | None:
    """Return the answer, or the verifier's argument, that stands in what the model is given; None for none."""
    shown = msgspec.json.encode([task.prompt, task.tools]).decode()
    for text in (*_texts(task.ground_truth), *_texts(task.verifier_arguments)):
        if len(text) >= ANSWER_CHARACTERS_MIN and msgspec.json.encode(text).decode()[1:-1] in shown:
            return text
    return None


def _texts(value: Any) -> Iterator[str]:
    """Yield an answer as the texts by which a prompt could give it away: itself, or whole as JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)) and value:
        yield msgspec.json.encode(value).decode()


def write_rlvr(
    folder: str, sources: Sources, loaded: Loaded, rows: pl.DataFrame, kept: Kept, funnel: Funnel,
    families: Sequence[str], pin: str,
) -> Manifest:  # fmt: skip
    """Write the tasks, the families' files and what stands beside them; return the manifest."""
    table = ParquetRows(folder, "tasks", TASK_SCHEMA)
    writers = [RLVR[name](folder) for name in families]
    root = hashlib.sha256(b"trajlake rows 1")
    gone: list[tuple[str, str, int, str, str]] = []
    splits: dict[str, int] = {}
    members: list[tuple[str, str]] = []
    for task in tasks_of(rows, kept, loaded.policy):
        answer = answer_in(task)
        if answer is not None:
            gone.append((task.facts["tenant"], task.facts["trajectory_id"], 0, "answer_in_prompt", answer[:80]))
            continue
        row = _row(task)
        root.update(hashlib.sha256(msgspec.json.encode(row)).digest())
        table.add(row["split"], row, len(row["prompt_json"]))
        splits[row["split"]] = splits.get(row["split"], 0) + 1
        members.append((row["tenant"], row["trajectory_id"]))
        for writer in writers:
            writer.write(task)
    dropped = pl.DataFrame(gone, orient="row", schema=DROPPED_SCHEMA)
    funnel.note(19, "rendering", "tasks", len(rows), dropped)
    files: list[FileFacts] = table.close()
    for writer in writers:
        files += writer.close()
    written = Written(
        files, root.hexdigest(), sum(splits.values()), 0, 0, dropped, dict(sorted(splits.items())), sorted(set(members))
    )
    refused = {writer.family: dict(sorted(writer.refused.items())) for writer in writers if writer.refused}
    os.makedirs(folder, exist_ok=True)
    return complete(folder, "rlvr", sources, loaded, funnel, written, list(families), refused, rows, pin)


def _row(task: Task) -> dict[str, Any]:
    def text(value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    return {
        **task.facts,
        "prompt_json": text(task.prompt),
        "tools_json": text(task.tools),
        "environment_json": text(task.environment),
        "verifier_arguments_json": text(task.verifier_arguments),
        "ground_truth_json": text(task.ground_truth),
    }
