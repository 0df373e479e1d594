"""Objects are read ahead, but only so far: a landing is larger than memory."""

from __future__ import annotations

from typing import Any, cast

from trajlake.ingest.stores.object_client import ObjectClient
from trajlake.ingest.stores.object_replica import GETS_AT_ONCE, ObjectReplica


class Asked:
    """Says which objects were asked for; has none."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def get(self, key: str) -> Any:
        self.keys.append(key)


def test_no_more_objects_are_read_than_are_taken_and_a_few() -> None:
    client = Asked()
    keys = [f"writers/{number}" for number in range(10 * GETS_AT_ONCE)]
    each = ObjectReplica(cast("ObjectClient", client)).of_each(keys)
    for taken, key in enumerate(keys):
        assert next(each) == (key, [])
        assert len(client.keys) <= taken + GETS_AT_ONCE
    assert sorted(client.keys) == sorted(keys)
    assert next(each, None) is None
