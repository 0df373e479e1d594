"""Which sets hold trajectories that were erased after the cut. They must be cut again, and the old ones go."""

from __future__ import annotations

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.pipelines.lakehouse.pins import all_pins

from .tasks import read_table


class Recut(msgspec.Struct, frozen=True, kw_only=True):
    """A set to cut again: where it was written, and which of its trajectories have been erased."""

    set_name: str
    kind: str
    paths: list[str]
    snapshot: int
    erasures: list[str]
    trajectories: list[tuple[str, str]]


def sets_to_recut(lake: Lake) -> list[Recut]:
    """Return every pinned set with a trajectory that an erasure, asked for or done, covers and its cut lacked."""
    erased = _erased(lake)
    if not len(erased):
        return []
    paths = _paths(lake)
    found = []
    for pin in all_pins(lake):
        members = pl.DataFrame(pin.members, schema={"tenant": pl.String, "trajectory_id": pl.String}, orient="row")
        # An erasure that has rewritten the pin raised its epoch; the set outside was cut at the one before.
        cut_epoch = int(pin.detail.get("cut_erasure_epoch", pin.erasure_epoch))
        newer = erased.filter(pl.col("epoch") > cut_epoch)
        hit = members.join(newer, on=["tenant", "trajectory_id"], how="inner").sort("tenant", "trajectory_id")
        if len(hit):
            listed = paths.get(pin.name, [])
            found.append(
                Recut(
                    set_name=pin.name,
                    kind=str(pin.detail.get("kind", "")),
                    paths=listed,
                    snapshot=pin.snapshot,
                    erasures=sorted(set(hit["erasure_id"].to_list())),
                    trajectories=sorted(set(hit.select("tenant", "trajectory_id").iter_rows())),
                )
            )
    return found


def _erased(lake: Lake) -> pl.DataFrame:
    """Return tenant, trajectory_id, erasure_id, epoch of all that an erasure covers, refused ones apart."""
    schema = {"tenant": pl.String, "trajectory_id": pl.String, "erasure_id": pl.String, "epoch": pl.Int64}
    files = lake.ledger_files("erasures")
    if not files:
        return pl.DataFrame(schema=schema)
    names = ["erasure_id", "epoch", "state", "tenant", "trajectory_id", "subject", "at"]
    rows = pl.concat([read_parquet(path, names) for path in files])
    newest = rows.sort("erasure_id", "at").group_by("erasure_id", maintain_order=True).last()
    standing = newest.filter(pl.col("state") != "refused")
    by_id = standing.filter(pl.col("trajectory_id").is_not_null()).select(*schema)
    people = standing.filter(pl.col("trajectory_id").is_null() & pl.col("subject").is_not_null())
    if not len(people):
        return by_id
    named = read_table(lake, lake.newest(), "trajectories", ["tenant", "trajectory_id", "subjects"])
    named = named.filter(pl.col("subjects").is_not_null()).with_columns(
        pl.col("subjects").str.json_decode(pl.List(pl.String)).alias("subject")
    ).explode("subject")  # fmt: skip
    by_subject = named.join(people.drop("trajectory_id"), on=["tenant", "subject"], how="inner").select(*schema)
    return pl.concat([by_id, by_subject]).unique()


def _paths(lake: Lake) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in lake.ledger_files("exports"):
        for name, where in read_parquet(path, ["export_id", "path"]).iter_rows():
            found.setdefault(name, []).append(where)
    return {name: sorted(set(places)) for name, places in found.items()}
