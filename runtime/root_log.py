"""The journal of one root as the agent core sees it: this process's writer, and the segments of all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from .agent.ports import Found
from .leases.lease import LeaseRecord
from .root import Root
from .wal.frame import TrajectoryInfo
from .wal.reader import read_of_writer
from .wal.ticket import Ticket
from .wal.writer import Writer
from .wal.writer_options import WriterOptions


class RootLog:
    """Implements `agent.ports.Log`. A writer directory is claimed at the first use that needs one. Any thread."""

    def __init__(self, root: Root, options: WriterOptions | None = None) -> None:
        self._root = root
        self._options = options
        self._writer: Writer | None = None
        self._lock = threading.Lock()

    @property
    def writer(self) -> Writer:
        """This process's writer, claimed (and recovered) now if it is not yet."""
        if self._writer is not None:
            return self._writer
        with self._lock:
            if self._writer is None:
                self._writer = self._root.claim_writer(self._options)
            return self._writer

    @property
    def writer_id(self) -> str:
        return self.writer.writer_id

    @property
    def next_lsn(self) -> int:
        return self.writer.next_lsn

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> Ticket:
        return (self._writer or self.writer).append(events, info, lazy=lazy)

    def refuse_if_full(self) -> None:
        (self._writer or self.writer).refuse_if_full()

    def read(self, tenant: str, trajectory_id: str, record: LeaseRecord | None) -> Found:
        """Read the writers that the tenures name, from their first lsn; without a record, every writer."""
        first_lsns: dict[str, int] = {}
        if record is None:
            first_lsns = dict.fromkeys(self._root.writers(), 0)
        else:
            for tenure in record.tenures:
                known = first_lsns.get(tenure.writer, tenure.first_lsn)
                first_lsns[tenure.writer] = min(known, tenure.first_lsn)
        present = set(self._root.writers())
        places = [
            (self._root.writer_folder(writer), lsn) for writer, lsn in sorted(first_lsns.items()) if writer in present
        ]
        key = trajectory_key(tenant, trajectory_id)
        own = self._root.writer_folder(self._writer.writer_id) if self._writer is not None else ""
        events: list[Event] = []
        undurable: list[Event] = []
        for folder, first_lsn in places:
            found = read_of_writer(self._root.env, folder, first_lsn, key)
            events += found.events
            if folder != own:  # what this process's writer neither wrote nor recovered
                undurable += found.unsealed
        tenures = record.tenures if record is not None else ()
        missing = tuple(tenure.token for tenure in tenures if tenure.writer not in present)
        return Found(events, undurable, complete=not missing, missing_tenures=missing)

    def close(self) -> None:
        """Close the writer, if there is one; every lease must have been released before."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
