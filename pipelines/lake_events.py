"""The events of a lake for those who may not import `pipelines`: the entry point `lake_events` (`trajlake export`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import gap_in_words

if TYPE_CHECKING:
    import duckdb

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS: Final = (
    "tenant", "trajectory_id", "sequence_number", "fencing_token", "turn", "event_type", "recorded_at", "payload",
    "salt", "cryptographic_hash", "schema_version", "commitment", "writer", "lsn",
)  # fmt: skip


class LakeEvents:
    """The trajectories of one tenant at the newest snapshot. One thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, store: ContentStore, tenant: str) -> None:
        self._connection = connection
        self._store = store
        self._tenant = tenant

    def trajectory_ids(self) -> list[str]:
        """Return every id, sorted."""
        query = "select trajectory_id from trajectories where tenant = ? order by 1"
        return [str(name) for (name,) in self._rows(query, [self._tenant])]

    def events(self, trajectory_id: str) -> list[Event]:
        """Return the canonical events of a trajectory, in order; [] if there is none.

        Raises `LakeMissing` where events behind a gap are held back: a prefix must not pass for the whole.
        """
        if gap := gap_of(self._connection, self._tenant, trajectory_id):
            raise LakeMissing(f"{trajectory_id}: {gap}")
        query = (
            f"select {', '.join(COLUMNS)} from events where tenant = ? and trajectory_id = ? order by sequence_number"
        )
        return [
            event_of(dict(zip(COLUMNS, row, strict=True))) for row in self._rows(query, [self._tenant, trajectory_id])
        ]

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob, verified. Raises `LakeMissing` and `BlobDamaged`."""
        found = self._rows("select path from blobs where tenant = ? and sha256 = ?", [self._tenant, sha256])
        if not found:
            raise LakeMissing(f"blob {sha256} of tenant {self._tenant} is in no snapshot: erased, or never landed")
        return self._store.get(self._tenant, sha256, str(found[0][0]))

    def _rows(self, query: str, values: list[str]) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()


def open_lake(lake: str, tenant: str) -> LakeEvents:
    """Return the trajectories of `tenant` in `lake`. Raises `LakeError`."""
    from trajlake.pipelines.connect import connect
    from trajlake.pipelines.lakehouse.lake import Lake

    return LakeEvents(connect(lake, tenant=tenant), ContentStore(Lake.open(lake).url), tenant)


def gap_of(connection: duckdb.DuckDBPyConnection, tenant: str, trajectory_id: str) -> str:
    """Return what a trajectory lacks at this snapshot, in words, "" if no event of it waits in quarantine."""
    query = "select held_back, coalesce(last_sequence, -1) + 1 from trajectories where tenant = ? and trajectory_id = ?"
    row = connection.cursor().execute(query, [tenant, trajectory_id]).fetchone()
    return gap_in_words(int(row[0]), int(row[1])) if row is not None and row[0] else ""


def event_of(row: dict[str, Any]) -> Event:
    """Return the event that a row of `events` stands for; `row` by the names in `COLUMNS`."""
    return Event(
        tenant=row["tenant"],
        trajectory_id=row["trajectory_id"],
        sequence_number=row["sequence_number"],
        fencing_token=row["fencing_token"],
        turn=row["turn"],
        type=row["event_type"],
        recorded_at=(row["recorded_at"] - EPOCH) // timedelta(microseconds=1),
        payload=None if row["payload"] is None else row["payload"].encode(),
        salt=None if row["salt"] is None else bytes.fromhex(row["salt"]),
        hash=bytes.fromhex(row["cryptographic_hash"]),
        schema_version=row["schema_version"],
        commitment=bytes.fromhex(row["commitment"]),
        writer=row["writer"],
        lsn=row["lsn"],
    )
