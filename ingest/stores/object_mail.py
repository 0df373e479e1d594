"""Mail and the arbiter of generations in object storage: objects that are made only where none is."""

from __future__ import annotations

from collections.abc import Iterator

from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.mailbox.mail import MailConflict, MailItem, decode_item, encode_item
from trajlake.schemas.ids import trajectory_key

from .object_client import ObjectClient


class ObjectMailStore:
    """A `MailStore` over `mail/<key>/<id>.json`. Any thread and process may call."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client

    def post(self, item: MailItem) -> bool:
        text, key = encode_item(item), _key(item)
        if self._client.put_if_absent(key, text) is not None:
            return True
        there = self._client.get(key)
        if there is not None and there.data != text:
            raise MailConflict(f"mail {item.id} for {item.trajectory_id!r} is waiting already, with other contents")
        return False

    def waiting(self, tenant: str, trajectory_id: str) -> list[MailItem]:
        items = self._items(f"mail/{trajectory_key(tenant, trajectory_id).hex()}/")
        return sorted(items, key=lambda item: (item.posted_at, item.id))

    def delete(self, item: MailItem) -> None:
        self._client.delete(_key(item))

    def trajectories(self) -> Iterator[tuple[str, str]]:
        before = ""
        for listed in self._client.list("mail/"):
            folder = listed.key.rpartition("/")[0]
            if folder == before:
                continue
            found = self._client.get(listed.key)
            if found is not None:
                before = folder
                item = decode_item(found.data, listed.key)
                yield item.tenant, item.trajectory_id

    def _items(self, prefix: str) -> Iterator[MailItem]:
        for listed in self._client.list(prefix):
            found = self._client.get(listed.key)
            if found is not None:  # deleted by the lease holder meanwhile
                yield decode_item(found.data, listed.key)


class ObjectArbiter:
    """An `Arbiter` over `generations/<key>/<g>.json`."""

    def __init__(self, client: ObjectClient, *, env: Env = REAL_ENV) -> None:
        self._client = client
        self._env = env

    def create(self, key: str, generation: int, body: bytes) -> bool:
        # A second line makes the bytes this call's own, so that a lost answer can be told from a lost race.
        unique = body.rstrip(b"\n") + b"\n" + self._env.random_bytes(8).hex().encode() + b"\n"
        return self._client.put_if_absent(f"generations/{key}/{generation}.json", unique) is not None


def _key(item: MailItem) -> str:
    return f"mail/{trajectory_key(item.tenant, item.trajectory_id).hex()}/{item.id}.json"
