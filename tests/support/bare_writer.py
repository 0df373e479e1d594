"""A writer without threads: recovery and segments as the real one has them, every step at the caller's moment."""

from __future__ import annotations

from collections.abc import Sequence

from trajlake.runtime.env import Env, make_folder
from trajlake.runtime.wal.frame import prepare
from trajlake.runtime.wal.reader import iter_events
from trajlake.runtime.wal.recovery import Recovered, recover_writer
from trajlake.runtime.wal.segment import Group
from trajlake.runtime.wal.segment_chain import SegmentChain
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event

from .events import info_of

WRITER_ID = bytes(range(16))
FOLDER = f"/journal/writers/{WRITER_ID.hex()}"
SMALL = WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=32768)


def group(events: Sequence[Event]) -> Group:
    """Events of one trajectory as a group for a batch."""
    info = info_of(events[0].trajectory_id, events[0].tenant)
    return Group([prepare(event, info) for event in events], info)


class BareWriter:
    """Recovers on construction; `write` is durable on return."""

    def __init__(self, env: Env, *, options: WriterOptions = SMALL, folder: str = FOLDER) -> None:
        make_folder(env, folder)
        self.env = env
        self.folder = folder
        self.recovered: Recovered = recover_writer(env, folder, WRITER_ID)
        self.chain = SegmentChain(
            env, folder, WRITER_ID, next_number=self.recovered.next_number, next_lsn=self.recovered.next_lsn,
            previous_seal=self.recovered.previous_seal, options=options, threaded=False,
        )  # fmt: skip

    def write(self, *events: Event) -> None:
        """One barrier for all of them."""
        self.chain.write_batch([group([event]) for event in events])

    def events(self) -> list[Event]:
        return list(iter_events(self.env, self.folder))

    def close(self) -> None:
        self.chain.close()


def plain(events: Sequence[Event]) -> list[tuple[str, int, bytes | None, bytes]]:
    """What must survive of events, in a form that shows well when it does not."""
    return [(event.trajectory_id, event.sequence_number, event.payload, event.hash) for event in events]
