"""Take texts out of tables: of whole trajectories (erasure), or of some of their rows (retention).

Rows stay, with ids, order, hashes and status; `payload`, `salt` and every erasable column become null. A blob goes
once no row that still has its text names it. Files are rewritten, never updated in place: the old ones stay until
vacuum, or until the erasure removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.forgetting.erased_openings import openings_of, with_openings
from trajlake.pipelines.lakehouse.content_objects import blobs_of, rows_of
from trajlake.pipelines.lakehouse.content_store import is_packed, object_of
from trajlake.pipelines.lakehouse.lake import DataFile
from trajlake.pipelines.lakehouse.named_blobs import blobs_named
from trajlake.pipelines.lakehouse.packs import moved
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet
from trajlake.pipelines.lakehouse.run_draft import Draft
from trajlake.pipelines.lakehouse.standing import TrajectoryKey, keys_frame
from trajlake.pipelines.lakehouse.table_files import may_hold, read_columns, read_rows
from trajlake.schemas.columns import Table
from trajlake.schemas.tables import SNAPSHOT_TABLES

KEY: Final = ["tenant", "trajectory_id"]
BLOB: Final = ["tenant", "sha256"]
Change = Callable[[pl.DataFrame], pl.DataFrame]


class Forgotten(NamedTuple):
    """`rows` of events that lost their text; `blobs` (tenant, sha256, path) that left `blobs`; `imports` touched."""

    rows: int
    blobs: list[tuple[str, str, str]]
    imports: list[tuple[str, str]]


def erasable(table: Table) -> list[str]:
    """Return the columns of a table that an erasure empties."""
    return [column.name for column in table.columns if column.erasable]


def texts_null(table: Table) -> Change:
    """Return the change that empties every erasable column."""
    return lambda rows: rows.with_columns(pl.lit(None).cast(rows.schema[name]).alias(name) for name in erasable(table))


def has_text(table: Table) -> pl.Expr:
    """Return the expression: does any erasable column of the row still hold something?"""
    names = erasable(table)
    return pl.any_horizontal(pl.col(name).is_not_null() for name in names) if names else pl.lit(False)


def forget(draft: Draft, epochs: dict[TrajectoryKey, int]) -> Forgotten:
    """Empty the texts of whole trajectories (key -> erasure epoch) in every table of the draft."""
    keys = keys_frame(epochs)
    if not len(keys):
        return Forgotten(0, [], [])
    events = read_rows(may_hold(draft.remaining("events"), keys), SNAPSHOT_TABLES["events"], keys)
    aside = read_rows(may_hold(draft.remaining("quarantine"), keys), SNAPSHOT_TABLES["quarantine"], keys)
    named = set(blobs_named(events.filter(pl.col("payload").is_not_null())))
    named |= set(blobs_named(aside.filter(pl.col("payload").is_not_null())))
    sources = imports_of(read_rows(draft.remaining("imports"), SNAPSHOT_TABLES["imports"]), keys)
    for name, table in SNAPSHOT_TABLES.items():
        if "trajectory_id" not in table.column_names:
            continue
        change = texts_null(table)
        if name == "trajectories":
            change = _with_epochs(change, epochs)
        elif name == "quarantine":
            change = _keeping_openings(change)
        elif not erasable(table):
            continue
        rewrite(draft, name, keys, change)
    rewrite(draft, "imports", pl.DataFrame(sources, schema=dict.fromkeys(BLOB, pl.String), orient="row"),
            texts_null(SNAPSHOT_TABLES["imports"]), on=BLOB)  # fmt: skip
    gone = drop_blobs(draft, named | set(sources), keys, set(sources))
    return Forgotten(int(events["payload"].is_not_null().sum()), gone, sorted(sources))


def _keeping_openings(change: Change) -> Change:
    return lambda rows: change(with_openings(rows, openings_of(rows)))


def _with_epochs(change: Change, epochs: dict[TrajectoryKey, int]) -> Change:
    rows_of = [(tenant, trajectory_id, epoch) for (tenant, trajectory_id), epoch in epochs.items()]
    schema = {"tenant": pl.String, "trajectory_id": pl.String, "epoch": pl.Int64}
    known = pl.DataFrame(rows_of, schema=schema, orient="row")

    def with_epochs(rows: pl.DataFrame) -> pl.DataFrame:
        found = change(rows).join(known, on=KEY, how="left", maintain_order="left")
        return found.with_columns(pl.coalesce("erasure_epoch", "epoch").alias("erasure_epoch")).drop("epoch")

    return with_epochs


def rewrite(draft: Draft, table: str, keys: pl.DataFrame, change: Change, on: Sequence[str] = KEY) -> int:
    """Apply `change` to the rows of `table` that stand in `keys`, file by file; return how many there are.

    `keys` has the columns `on`, the first of them `tenant`. A file without such a row is left as it is.
    """
    described = SNAPSHOT_TABLES[table]
    files = draft.remaining(table)
    touched = 0
    for number, file in enumerate(may_hold(files, keys) if list(on) == KEY else files):
        if not hits(file, keys, on):
            continue
        rows = read_rows([file], described)
        mine = rows.join(keys.select(on).unique(), on=list(on), how="semi", maintain_order="left")
        rest = rows.join(keys.select(on).unique(), on=list(on), how="anti", maintain_order="left")
        whole = pl.concat([rest, change(mine).select(rows.columns)]).sort(described.sort_by, nulls_last=True)
        if len(whole) != file.rows:
            raise AssertionError(f"{file.path}: {file.rows} rows, {len(whole)} after the change")
        draft.write(table, whole, f"forget{number:04d}")
        draft.remove(table, [file])
        touched += len(mine)
    return touched


def hits(file: DataFile, keys: pl.DataFrame, on: Sequence[str] = KEY) -> bool:
    """Tell whether a file holds a row of `keys`, reading one column of it."""
    inside = keys.filter(pl.col("tenant") == file.partition["tenant"])[on[1]]
    if not len(inside):
        return False
    scan = scan_parquet(file.path).select(pl.col(on[1]).is_in(inside.implode()))
    return bool(scan.collect().to_series().any())


def drop_blobs(
    draft: Draft, named: set[tuple[str, str]], keys: pl.DataFrame, sources: set[tuple[str, str]]
) -> list[tuple[str, str, str]]:
    """Take out of `blobs` those of `named` that no row with a text names any more; return (tenant, sha256, path).

    Not twice in a run. `keys` are the trajectories whose texts go in this run, `sources` the imports whose source goes.
    """
    blobs = take_out(draft, named - live_blobs(draft, named, keys, sources))
    return sorted(blobs.select("tenant", "sha256", "path").iter_rows())


def take_out(draft: Draft, blobs: Iterable[tuple[str, str]]) -> pl.DataFrame:
    """Take rows out of `blobs`, once in a run, and return them; what shares a pack with one moves to another pack."""
    wanted = pl.DataFrame(sorted(blobs), schema=dict.fromkeys(BLOB, pl.String), orient="row")
    # Rows of one pack stand in one file: they were written together, and files are only merged whole or filtered.
    files = [file for file in draft.remaining("blobs") if hits(file, wanted, BLOB)]
    rows = read_rows(files, SNAPSHOT_TABLES["blobs"])
    if not files:
        return rows
    leaving, shared = leaving_and_shared(rows, wanted)
    draft.drop("blobs", pl.concat([wanted, shared.select(BLOB)]), on=("tenant", "sha256"))
    if len(shared):
        draft.write("blobs", rows_of(moved(draft.lake.url, blobs_of(shared), draft.run)), "moved")
    return leaving


def leaving_and_shared(rows: pl.DataFrame, wanted: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return those rows of `blobs` that stand in `wanted`, and the others that share a pack with one of them."""
    leaving = rows.join(wanted, on=BLOB, how="semi", maintain_order="left")
    packs = {object_of(path) for path in leaving["path"] if is_packed(path)}
    others = rows.join(wanted, on=BLOB, how="anti", maintain_order="left").sort("path")
    return leaving, others.filter(pl.Series([object_of(path) in packs for path in others["path"]], dtype=pl.Boolean))


def live_blobs(
    draft: Draft, among: Iterable[tuple[str, str]], without: pl.DataFrame, sources: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the blobs of `among` that rows of trajectories other than `without`, or other imports, still name."""
    wanted = pl.DataFrame(sorted(set(among)), schema=dict.fromkeys(BLOB, pl.String), orient="row")
    if not len(wanted):
        return set()
    gone = pl.concat([without.select(KEY), erased_keys(draft)]).unique()
    refs = read_rows(draft.files("blob_refs"), SNAPSHOT_TABLES["blob_refs"]).join(wanted, on=BLOB, how="semi")
    live = set(refs.join(gone, on=KEY, how="anti").select(BLOB).unique().iter_rows())
    tenants = set(wanted["tenant"])
    texts = ["quarantine", "events"] if "blob_refs" in draft.snapshot.stale else ["quarantine"]
    for table in texts:
        files = [file for file in draft.files(table) if file.partition["tenant"] in tenants]
        rows = read_rows(files, SNAPSHOT_TABLES[table]).filter(pl.col("payload").is_not_null())
        live |= set(blobs_named(rows.join(gone, on=KEY, how="anti")))
    imports = read_rows(draft.files("imports"), SNAPSHOT_TABLES["imports"])
    live |= set(imports.select(BLOB).iter_rows()) - sources - _emptied(imports)
    return live & set(wanted.iter_rows())


def live_in_adds(draft: Draft, among: set[tuple[str, str]], without: pl.DataFrame) -> set[tuple[str, str]]:
    """Return the blobs of `among` that rows which the run itself writes for other trajectories name."""
    live: set[tuple[str, str]] = set()
    for table in ("blob_refs", "quarantine", "events"):
        for add in draft.adds.get(table, []):
            path = draft.lake.path(table, add.path)
            file = DataFile(path, add.path, add.size, add.rows, add.partition, {}, {})
            rows = read_rows([file], SNAPSHOT_TABLES[table]).join(without, on=KEY, how="anti")
            if table == "blob_refs":
                live |= set(rows.select(BLOB).iter_rows())
            else:
                live |= set(blobs_named(rows.filter(pl.col("payload").is_not_null())))
    return live & among


def _emptied(imports: pl.DataFrame) -> set[tuple[str, str]]:
    return set(imports.filter(pl.col("report").is_null()).select(BLOB).iter_rows())


def erased_keys(draft: Draft) -> pl.DataFrame:
    """Return the trajectories whose texts an erasure or retention took in full before."""
    names = (*KEY, "status", "erasure_epoch")
    rows = read_columns(draft.files("trajectories"), SNAPSHOT_TABLES["trajectories"], names)
    return rows.filter(pl.col("erasure_epoch").is_not_null() | (pl.col("status") == "expired")).select(KEY)


class _Report(msgspec.Struct):
    trajectories: dict[str, Any] = {}


def imports_of(imports: pl.DataFrame, keys: pl.DataFrame) -> list[tuple[str, str]]:
    """Return (tenant, sha256) of the imports that gave one of these trajectories: their sources hold its text."""
    wanted: dict[str, set[str]] = {}
    for tenant, trajectory_id in keys.select(KEY).iter_rows():
        wanted.setdefault(tenant, set()).add(trajectory_id)
    found = set()
    for tenant, digest, text in imports.filter(pl.col("report").is_not_null()).select(*BLOB, "report").iter_rows():
        if tenant in wanted and named_in(text) & wanted[tenant]:
            found.add((tenant, digest))
    return sorted(found)


def named_in(report: str) -> set[str]:
    """Return the trajectories that a loss report names."""
    try:
        return set(msgspec.json.decode(report, type=_Report).trajectories)
    except msgspec.MsgspecError:
        return set()
