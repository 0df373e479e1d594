"""Records of a lake for `trajlake replay --lake` and the Beam pipeline: the entry point `lake_records`.

The events of a lake are canonical already; they are streamed in order, so a long trajectory is never held whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from trajlake.pipelines.lake_events import COLUMNS, event_of, gap_of
from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.runtime.replaying.record import Looker, Record, as_current
from trajlake.schemas.envelope import Event

if TYPE_CHECKING:
    import duckdb

FETCH: Final = 2000
HELD_MAX_BYTES: Final = 4 << 20
"""Payload bytes up to which a trajectory's events are kept; above, they are read again from the lake."""


class LakeRecords:
    """The trajectories of one tenant at the newest snapshot. One thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, store: ContentStore, tenant: str) -> None:
        self._connection, self._store, self._tenant = connection, store, tenant

    def trajectory_ids(self) -> list[str]:
        query = "select trajectory_id from trajectories where tenant = ? and kind <> 'judgement' order by 1"
        return [str(name) for (name,) in self._connection.execute(query, [self._tenant]).fetchall()]

    def record(self, trajectory_id: str) -> Record | None:
        query = "select conflicts from trajectories where tenant = ? and trajectory_id = ?"
        row = self._connection.execute(query, [self._tenant, trajectory_id]).fetchone()
        if row is None:
            return None
        look, events, held = Looker(), [], 0
        rolled = False
        for event in self._stream(trajectory_id):
            look.at(event)
            held += len(event.payload or b"")
            rolled = rolled or event.type == "RolledBack"
            events.append(event if held <= HELD_MAX_BYTES or rolled else _bare(event))
        if held > HELD_MAX_BYTES and rolled:
            events = list(self._stream(trajectory_id))
        gap = gap_of(self._connection, self._tenant, trajectory_id)
        outline = look.outline(events, conflicts=bool(row[0]), gap=gap)
        whole = held <= HELD_MAX_BYTES

        def read() -> Iterator[Event]:
            return iter(events) if whole else self._stream(trajectory_id)

        if not whole:
            events = []
        return Record(
            tenant=self._tenant, trajectory_id=trajectory_id, read=read, blob=self.blob, outline=outline,
            find=self.record,
        )  # fmt: skip

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob, verified. Raises `LakeMissing` and `BlobDamaged`."""
        query = "select path from blobs where tenant = ? and sha256 = ?"
        found = self._connection.cursor().execute(query, [self._tenant, sha256]).fetchone()
        if found is None:
            raise LakeMissing(f"blob {sha256} of tenant {self._tenant} is in no snapshot: erased, or never landed")
        return self._store.get(self._tenant, sha256, str(found[0]))

    def _stream(self, trajectory_id: str) -> Iterator[Event]:
        query = (
            f"select {', '.join(COLUMNS)} from events where tenant = ? and trajectory_id = ? order by sequence_number"
        )
        cursor = self._connection.cursor().execute(query, [self._tenant, trajectory_id])
        while rows := cursor.fetchmany(FETCH):
            for row in rows:
                named: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
                yield as_current(event_of(named))


def _bare(event: Event) -> Event:
    """The event without its long payload: its place and type are enough for an outline."""
    import msgspec

    return msgspec.structs.replace(event, payload=None if event.payload is None else b"{}", salt=None)


def open_records(lake: str, tenant: str) -> LakeRecords:
    """Return the records of `tenant` in `lake`. Raises `LakeError`."""
    from trajlake.pipelines.connect import connect
    from trajlake.pipelines.lakehouse.lake import Lake

    return LakeRecords(connect(lake, tenant=tenant), ContentStore(Lake.open(lake).url), tenant)
