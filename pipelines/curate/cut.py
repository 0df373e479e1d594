"""Cutting a set: select, write, and leave it with a ledger, a manifest, a card and a pin. All of it or nothing.

The folder appears whole, under its name, at the end; before that it is `<out>.partial`. The pin is put before the
folder appears, so that a set that exists can be rebuilt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.content_store import object_of
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.pipelines.lakehouse.pins import Pin, files_to_pin, put_pin
from trajlake.runtime.cli_errors import UserError

from .card import card_text
from .funnel import Funnel
from .kept import Kept, Run, drop_erased, pool_of
from .manifest import NAME, Manifest, digest_of, libraries, manifest_bytes
from .pinned import PinnedLake
from .policy import Loaded
from .scan import scan
from .select import Chosen, choose
from .sources import PINNED_TABLES, Sources
from .write_set import Written, write_set
from .writers.family import Writer, facts_of
from .writers.registry import SFT, check_families

LEDGER_FILE: Final = "ledger.parquet"
KINDS: Final = ("sft", "rlvr")


class Cut(NamedTuple):
    """What became of one run. `manifest` is None for a dry run."""

    funnel: Funnel
    manifest: Manifest | None
    read_anew: int
    rows: int


class CutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`families` are names of writers; `workers` processes read events; `pin` names the pin (made from the policy
    when empty); `runner` is a Beam runner to read events on instead of processes here."""

    families: tuple[str, ...] = ("openai",)
    workers: int = 1
    dry_run: bool = False
    pin: str = ""
    snapshot: int | None = None
    runner: str | None = None
    beam_options: tuple[str, ...] = ()


def run_of(options: CutOptions) -> Run:
    """Return what runs extraction's tasks: processes here, or a Beam runner."""
    if options.runner is None:
        return pool_of(options.workers)

    def run(plan_path: str, count: int) -> None:
        from trajlake.pipelines.curate.beam_curate import run_tasks

        run_tasks(plan_path, count, str(options.runner), options.beam_options)

    return run


def cut_sft(lake: str, loaded: Loaded, out: str | None, options: CutOptions) -> Cut:
    """Cut an SFT set from the newest snapshot (or a given one) into the new folder `out`."""
    families = check_families(options.families, list(SFT))
    opened = Lake.open(lake)
    sources = fresh_sources(opened, options)
    chosen = choose(sources, loaded, run_of(options))
    if options.dry_run:
        return Cut(chosen.funnel, None, chosen.read_anew, len(chosen.rows))
    target = new_folder(out)
    manifest = write_sft(target, sources, loaded, chosen, families, options.pin)
    finish(opened, sources, loaded, manifest, chosen.kept, target, manifest_members(target))
    return Cut(chosen.funnel, manifest, chosen.read_anew, manifest.rows)


def fresh_sources(lake: Lake, options: CutOptions) -> Sources:
    """Return the sources of a first cut: what erasures took is forgotten, what is not scanned is scanned."""
    snapshot = lake.newest() if options.snapshot is None else lake.snapshot(options.snapshot)
    drop_erased(lake, snapshot)
    scan(lake, snapshot)
    return Sources(lake, snapshot)


def new_folder(out: str | None) -> str:
    """Return `<out>.partial`, empty; raise `UserError` where `out` exists."""
    if not out:
        raise UserError("name the folder of the set: --out DIR (or --dry-run for the funnel alone)")
    out = os.path.abspath(out)
    if os.path.exists(out):
        raise UserError(f"{out}: exists; a set is never changed in place, name a new folder")
    partial = f"{out}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial, mode=0o700)
    return partial


def write_sft(
    folder: str, sources: Sources, loaded: Loaded, chosen: Chosen, families: Sequence[str], pin: str
) -> Manifest:
    """Write rows, families, ledger, policy, card and manifest below `folder`; return the manifest."""
    writers: list[Writer] = [SFT[name](folder) for name in families]
    written = write_set(folder, chosen.rows, chosen.kept, loaded, writers)
    chosen.funnel.note(19, "rendering", "rows", len(chosen.rows), written.dropped)
    refused = {writer.family: dict(sorted(writer.refused.items())) for writer in writers if writer.refused}
    return complete(folder, "sft", sources, loaded, chosen.funnel, written, list(families), refused, chosen.rows, pin)


def complete(
    folder: str, kind: str, sources: Sources, loaded: Loaded, funnel: Funnel, written: Written, families: list[str],
    refused: dict[str, dict[str, int]], rows: pl.DataFrame, pin: str,
) -> Manifest:  # fmt: skip
    """Write what stands beside the rows, and return the manifest."""
    ledger = funnel.ledger()
    ledger.write_parquet(os.path.join(folder, LEDGER_FILE), compression="zstd", compression_level=3)
    pl.DataFrame(written.members, schema={"tenant": pl.String, "trajectory_id": pl.String}, orient="row").write_parquet(
        os.path.join(folder, "members.parquet"), compression="zstd"
    )
    _copy_inputs(folder, loaded)
    snapshot = sources.snapshot
    identity = digest_of([loaded.sha256, families, sources.ledger_files()])[:12]
    name = pin or f"{loaded.policy.name}-{kind}-{snapshot.number}-{identity}"
    groups = sorted(rows["split_group"].unique().to_list())
    manifest = Manifest(
        kind=kind,
        name=loaded.policy.name,
        pin=name,
        snapshot=snapshot.number,
        erasure_epoch=snapshot.erasure_epoch,
        table_versions={table: snapshot.tables[table] for table in PINNED_TABLES if table in snapshot.tables},
        policy_sha256=loaded.sha256,
        policy=msgspec.to_builtins(loaded.policy),
        evaluation_sha256=loaded.input_hashes,
        template_sha256=hashlib.sha256(loaded.template.encode()).hexdigest() if loaded.template else "",
        families=families,
        seed=loaded.policy.seed,
        libraries=libraries(),
        funnel=funnel.steps,
        refused=refused,
        rows=written.rows,
        splits=written.splits,
        split_groups_sha256=digest_of(groups),
        trained_share=round(written.target_tokens / written.tokens, 6) if written.tokens else 0.0,
        row_root=written.row_root,
        files=[
            *written.files,
            facts_of(folder, LEDGER_FILE, len(ledger)),
            facts_of(folder, "members.parquet", len(written.members)),
        ],
    )
    with open(os.path.join(folder, NAME), "wb") as file:
        file.write(manifest_bytes(manifest))
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as text:
        text.write(card_text(manifest))
    return manifest


def _copy_inputs(folder: str, loaded: Loaded) -> None:
    """Keep the policy and what it names beside the set: a rebuild needs nothing else."""
    with open(os.path.join(folder, "policy.toml"), "w", encoding="utf-8") as file:
        file.write(loaded.text)
    inputs: dict[str, bytes] = dict(loaded.evaluations)
    if loaded.template:
        inputs[os.path.basename(loaded.policy.prefix.template)] = loaded.template.encode()
    for name, data in sorted(inputs.items()):
        os.makedirs(os.path.join(folder, "inputs"), exist_ok=True)
        with open(os.path.join(folder, "inputs", name), "wb") as target:
            target.write(data)


def manifest_members(folder: str) -> list[tuple[str, str]]:
    """Return the trajectories of a set, from its members file."""
    rows = pl.read_parquet(os.path.join(folder, "members.parquet"))
    return [(tenant, trajectory) for tenant, trajectory in rows.iter_rows()]


def finish(
    lake: Lake, sources: Sources, loaded: Loaded, manifest: Manifest, kept: Kept, folder: str,
    members: list[tuple[str, str]],
) -> None:  # fmt: skip
    """Pin what the set was cut from, give the folder its name, and note the set in the ledger `exports`."""
    if not isinstance(lake, PinnedLake):
        put_pin(lake, pin_of(sources, manifest, kept, members))
    out = folder.removesuffix(".partial")
    os.rename(folder, out)
    with open(os.path.join(out, NAME), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if not isinstance(lake, PinnedLake):
        _export(lake, loaded, manifest, digest, out)


def pin_of(sources: Sources, manifest: Manifest, kept: Kept, members: list[tuple[str, str]]) -> Pin:
    """Return the pin of a set: every file of the tables it read, the ledger's files, and the blobs it stands on."""
    lake, snapshot = sources.lake, sources.snapshot
    files = files_to_pin(lake, snapshot, PINNED_TABLES)
    files["secrets"] = sources.ledger_files()
    files["cas"] = _objects(sources, kept)
    return Pin(
        name=manifest.pin,
        snapshot=snapshot.number,
        erasure_epoch=snapshot.erasure_epoch,
        files=files,
        members=members,
        detail={
            "kind": manifest.kind,
            "policy_sha256": manifest.policy_sha256,
            "families": manifest.families,
            "table_versions": manifest.table_versions,
            "row_root": manifest.row_root,
        },
    )


def _objects(sources: Sources, kept: Kept) -> list[str]:
    """Return the content objects that any candidate row stands on, as paths below the lake."""
    from .tasks import read_table

    heads = sources.trajectories("task").select("tenant", "trajectory_id", "head_hash")
    rows = kept.features(heads, ["blobs"]).select("tenant", "blobs").explode("blobs").drop_nulls().unique()
    if not len(rows):
        return []
    blobs = read_table(sources.lake, sources.snapshot, "blobs", ["tenant", "sha256", "path"])
    found = rows.join(blobs, left_on=["tenant", "blobs"], right_on=["tenant", "sha256"], how="inner")
    return sorted({object_of(path) for path in found["path"]})


def _export(lake: Lake, loaded: Loaded, manifest: Manifest, digest: str, out: str) -> None:
    known = [
        row
        for path in lake.ledger_files("exports")
        for row in read_parquet(path, ["manifest_sha256", "path"]).iter_rows()
    ]
    if (digest, out) in known:
        return
    detail: dict[str, Any] = {"policy_sha256": loaded.sha256, "families": manifest.families, "pin": manifest.pin}
    append_ledger(
        lake,
        "exports",
        [
            {
                "export_id": manifest.pin,
                "kind": manifest.kind,
                "manifest_sha256": digest,
                "path": out,
                "rows": manifest.rows,
                "erasure_epoch": manifest.erasure_epoch,
                "snapshot": manifest.snapshot,
                "detail": msgspec.json.encode(detail).decode(),
            }
        ],
    )
