"""What `trajlake recover --from s3://BUCKET/PREFIX` reads: landed segments, a replica's tails, the blobs of both."""

from __future__ import annotations

import re
from typing import Final

from trajlake.runtime.replicas.recover_from import OpenOnes
from trajlake.runtime.replicas.replica import events_of
from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from .object_client import ObjectClient
from .object_replica import ObjectReplica

_LANDED: Final = re.compile(r"writers/[0-9a-f]{32}/\d{20}-\d{20}\.seg")


class ObjectSource:
    """A `recover_from.Source`. Every segment is read once, to learn whose it is; later only those that are wanted."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._objects = ObjectReplica(client)
        self._tails: list[str] = []
        self._holders: dict[bytes, list[str]] | None = None
        self._open = OpenOnes()

    @property
    def is_replica(self) -> bool:
        """Whether workers waited for it: only a replica has tails."""
        self._index()
        return bool(self._tails)

    def events(self, tenant: str, trajectory_id: str) -> list[Event]:
        key = trajectory_key(tenant, trajectory_id)
        found = self._objects.of_each(self._index().get(key, []), key)
        return [event for _, frames in found for event in events_of(frames)]

    def get(self, tenant: str, sha256: str) -> bytes:
        return self._objects.get(tenant, sha256)

    def open_trajectories(self, tenant: str) -> list[str]:
        self._index()
        return self._open.of(tenant)

    def _index(self) -> dict[bytes, list[str]]:
        """Which objects hold frames of which trajectory."""
        if self._holders is None:
            self._tails = self._objects.tails()
            landed = [one.key for one in self._client.list("writers/") if _LANDED.fullmatch(one.key)]
            holders: dict[bytes, list[str]] = {}
            for key, frames in self._objects.of_each([*landed, *self._tails]):
                for whose in {frame.info.key for frame in frames}:
                    holders.setdefault(whose, []).append(key)
                for event in events_of(frames):
                    self._open.add(event)
            self._holders = holders
        return self._holders
