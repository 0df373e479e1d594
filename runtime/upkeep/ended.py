"""Which trajectories of a root have ended for good: what retention and `gc` may let go of."""

from __future__ import annotations

from typing import Final

from trajlake.schemas.events import CODE_OF_NAME
from trajlake.schemas.ids import trajectory_key

from ..leases.lease import LeaseRecord
from ..root import Root
from ..stores import lease_store
from ..wal.reader import SegmentFile, list_segments, read_segment

_TASK_ENDED: Final = CODE_OF_NAME["TaskEnded"].to_bytes(2, "little")
_TYPE_CODE_AT: Final = 28


class Ended:
    """A look at a root at one moment. Raises `SegmentCorrupt`, or `LeaseError` for a damaged lease record.

    `keys` are the trajectories that ended for good: an event `TaskEnded` under a token that, by the lease record, was
    released with its head (so nobody had superseded it), and no lease now. Without a record (an import) `TaskEnded`
    alone decides. `open_writers` are those that the lease record of any other trajectory names.
    """

    def __init__(self, root: Root) -> None:
        tokens: dict[bytes, set[int]] = {}
        for writer in root.writers():
            for segment in list_segments(root.env, root.writer_folder(writer)):
                _collect(root, segment, tokens)
        self.keys: set[bytes] = set()
        self.open_writers: set[str] = set()
        recorded: set[bytes] = set()
        for record in lease_store(root).records():
            key = trajectory_key(record.tenant, record.trajectory_id)
            recorded.add(key)
            if _has_ended(record, tokens.get(key, set())):
                self.keys.add(key)
            else:
                self.open_writers.update(tenure.writer for tenure in record.tenures)
        self.keys.update(tokens.keys() - recorded)


def _collect(root: Root, segment: SegmentFile, tokens: dict[bytes, set[int]]) -> None:
    """Note the tokens of all `TaskEnded` in a segment. Only headers are looked at."""
    try:
        scan = read_segment(root.env, segment.path)
    except FileNotFoundError:
        return
    data = scan.data
    for index, offset in enumerate(scan.offsets):
        if data[offset + _TYPE_CODE_AT : offset + _TYPE_CODE_AT + 2] == _TASK_ENDED:
            header = scan.header_of(index)
            tokens.setdefault(header.trajectory_key, set()).add(header.fencing_token)


def _has_ended(record: LeaseRecord, tokens: set[int]) -> bool:
    if record.holder is not None or record.tenures[-1].released_head is None:
        return False
    return any(tenure.token in tokens and tenure.released_head is not None for tenure in record.tenures)
