"""What a root, and the lake it feeds, hold of imported trajectories already: found through indexes, read on demand."""

from __future__ import annotations

from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import list_segments, load_seal, read_segment, read_trajectory
from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from .lake_side import LakeSide
from .numbering import Held


class HeldEvents:
    """One mapping version's events in one root, for one import run.

    Built from the segments as they stood when it was made, plus what the run itself has appended (`note`).
    """

    def __init__(self, root: Root, tenant: str, side: LakeSide | None = None) -> None:
        self._root = root
        self._tenant = tenant
        self._side = side
        self._folders: dict[bytes, set[str]] | None = None
        self._mine: dict[tuple[str, int], Held] = {}

    def of(self, trajectory_id: str, mapping_version: int) -> Held:
        """Return the gapless run of events, from 0, that the root holds under one mapping version."""
        mine = self._mine.get((trajectory_id, mapping_version))
        if mine is None:
            mine = self._mine[trajectory_id, mapping_version] = self._read(trajectory_id, mapping_version)
        return Held(list(mine.hashes), mine.start)

    def note(self, event: Event) -> None:
        """Remember an event that this run has appended."""
        held = self._mine[event.trajectory_id, event.fencing_token]
        held.hashes.append(event.hash)
        if event.sequence_number == 0:
            self._mine[event.trajectory_id, event.fencing_token] = Held(held.hashes, event)

    def has(self, key: bytes) -> bool:
        """Return whether the root's segments name a trajectory, under any mapping version."""
        return key in self._index()

    def _read(self, trajectory_id: str, mapping_version: int) -> Held:
        key = trajectory_key(self._tenant, trajectory_id)
        by_number, start = self._side.held(trajectory_id, mapping_version) if self._side else ({}, None)
        folders = self._index().get(key)
        if folders:
            events, _ = read_trajectory(self._root.env, [(folder, 0) for folder in sorted(folders)], key)
            for event in events:
                if event.fencing_token == mapping_version:
                    other = by_number.get(event.sequence_number)
                    if other is None or event.hash < other:
                        by_number[event.sequence_number] = event.hash
                        start = event if event.sequence_number == 0 else start
        hashes: list[bytes] = []
        while len(hashes) in by_number:
            hashes.append(by_number[len(hashes)])
        return Held(hashes, start)

    def _index(self) -> dict[bytes, set[str]]:
        if self._folders is None:
            self._folders = {}
            for writer in self._root.writers():
                folder = self._root.writer_folder(writer)
                for segment in list_segments(self._root.env, folder):
                    if segment.is_sealed:
                        seal, _ = load_seal(self._root.env, segment)
                        keys = [seal.key(ordinal) for ordinal in set(seal.ordinals)]
                    else:
                        keys = list(read_segment(self._root.env, segment.path).infos)
                    for key in keys:
                        self._folders.setdefault(key, set()).add(folder)
        return self._folders
