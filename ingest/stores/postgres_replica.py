"""The replica in PostgreSQL: the warm tier's tables, acknowledged only once the server has them on disk."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256 as digest_of
from typing import Final

from trajlake.runtime.replicas.replica import BlobNotHeld, Frame, frame_in
from trajlake.runtime.wal.frame import TrajectoryInfo

from .postgres_database import Connection, Database
from .postgres_events import insert_frames
from .sql_text import statement
from .store_errors import StoreRefused

BLOB_MAX_BYTES: Final = 1 << 29
"""A field of PostgreSQL holds less than 1 GiB, and its text form, which tools read, is twice as long."""


class PostgresReplica:
    """A `Replica`. Every transaction commits synchronously; a server that runs with fsync off is refused.

    Where the server has synchronous standbys, an acknowledgement waits for them too (`synchronous_commit` of the role
    or database may say `remote_apply`; only `off` is raised to `on`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._may_copy: bool | None = None

    def put(self, tenant: str, sha256: str, data: bytes) -> None:
        if digest_of(data).hexdigest() != sha256:
            raise ValueError(f"blob {sha256}: the bytes given hash to {digest_of(data).hexdigest()}")
        if len(data) > BLOB_MAX_BYTES:
            raise StoreRefused(f"blob {sha256}: {len(data)} bytes, PostgreSQL takes {BLOB_MAX_BYTES} at most")
        named = {"tenant": tenant, "sha256": bytes.fromhex(sha256), "data": data}

        def put(connection: Connection) -> None:
            self._commit_durably(connection)
            connection.execute(statement("blob_put"), named)

        self._database.run(put)

    def append(self, writer: str, frames: Sequence[Frame]) -> int:
        """All or none. See `Replica.append`."""
        if not frames:
            return -1

        def append(connection: Connection) -> None:
            self._commit_durably(connection)
            _check_blobs(connection, frames)
            insert_frames(connection, writer, frames, may_copy=bool(self._may_copy))

        self._database.run(append)
        return frames[-1].header.lsn

    def read(self, tenant: str, trajectory_id: str) -> list[Frame]:
        named = {"tenant": tenant, "trajectory_id": trajectory_id}
        rows = self._database.run(lambda c: c.execute(statement("frames_read"), named).fetchall())
        frames = []
        for frame, model, started_on in rows:
            name, _, version = model.rpartition("@") if "@" in model else (model, "", "")
            info = TrajectoryInfo(
                tenant=tenant, trajectory_id=trajectory_id, model=name, model_version=version,
                started_on=started_on.isoformat(),
            )  # fmt: skip
            frames.append(frame_in(bytes(frame), info, f"{self._database.shown} {trajectory_id!r}"))
        return frames

    def get(self, tenant: str, sha256: str) -> bytes:
        named = {"tenant": tenant, "sha256": bytes.fromhex(sha256)}
        row = self._database.run(lambda c: c.execute(statement("blob_get"), named).fetchone())
        if row is None or digest_of(row[0]).hexdigest() != sha256:
            raise FileNotFoundError(f"blob {sha256} of {tenant!r} is not in {self._database.shown}")
        return bytes(row[0])

    def open_trajectories(self, tenant: str) -> list[str]:
        rows = self._database.run(lambda c: c.execute(statement("open_trajectories"), {"tenant": tenant}).fetchall())
        return sorted(name for (name,) in rows)

    def _commit_durably(self, connection: Connection) -> None:
        connection.execute(statement("synchronous_commit"))
        if self._may_copy is None:
            settings = connection.execute(statement("durable_settings")).fetchone()
            if settings != ("on", "on"):
                raise StoreRefused(
                    f"{self._database.shown}: runs with fsync or full_page_writes off: it can't be a replica"
                )
            row = connection.execute(statement("row_security_active")).fetchone()
            self._may_copy = row == (False,)


def _check_blobs(connection: Connection, frames: Sequence[Frame]) -> None:
    """Refuse frames that name a blob which is not here; those that are stay until the transaction ends."""
    named = sorted({(frame.info.tenant, sha256) for frame in frames for sha256 in frame.blobs})
    if not named:
        return
    asked = {"tenants": [one for one, _ in named], "sha256s": [bytes.fromhex(one) for _, one in named]}
    held = {(row[0], bytes(row[1]).hex()) for row in connection.execute(statement("blobs_held"), asked)}
    absent = [one for one in named if one not in held]
    if absent:
        raise BlobNotHeld(f"{len(absent)} blobs are not in the replica, {absent[0][1]} first: put them, then append")
