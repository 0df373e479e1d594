"""Where exports read trajectories from: a root, or a lake through a hook that `pipelines` registers.

`ingest` may not import `pipelines`, so a lake is opened by name: the entry point `lake_events` of group
`trajlake.stores` is `open_lake(lake, tenant) -> EventSource`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final, Protocol, cast

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events, list_segments, read_trajectory, trajectory_keys
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical, incomplete
from trajlake.schemas.ids import trajectory_key

SOURCE_GROUP: Final = "trajlake.stores"
SOURCE_NAME: Final = "lake_events"


class EventSource(Protocol):
    """Trajectories of one tenant, read-only."""

    def trajectory_ids(self) -> list[str]:
        """Return every id, sorted."""
        ...

    def events(self, trajectory_id: str) -> list[Event]:
        """Return the canonical events of a trajectory, in order; [] if there is none.

        Raises `UserError` where events behind a gap are held back: a prefix must not pass for the whole.
        """
        ...

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob, verified. Raises an error that says what is missing."""
        ...


class RootSource:
    """The trajectories of a root, as its segments hold them now."""

    def __init__(self, root: Root, tenant: str) -> None:
        self._root = root
        self._tenant = tenant
        self._folders: dict[bytes, set[str]] | None = None

    def trajectory_ids(self) -> list[str]:
        found = set()
        for writer in self._root.writers():
            for event in iter_events(self._root.env, self._root.writer_folder(writer)):
                if event.tenant == self._tenant and event.sequence_number == 0:
                    found.add(event.trajectory_id)
        return sorted(found)

    def events(self, trajectory_id: str) -> list[Event]:
        key = trajectory_key(self._tenant, trajectory_id)
        folders = [(folder, 0) for folder in sorted(self._index().get(key, ()))]
        found, _ = read_trajectory(self._root.env, folders, key)
        history = canonical(found)
        if gap := incomplete(history):
            raise UserError(f"{trajectory_id}: {gap} in {self._root.path}; run 'trajlake journal verify'")
        return history.events

    def blob(self, sha256: str) -> bytes:
        return self._root.blobs.get(self._tenant, sha256)

    def _index(self) -> dict[bytes, set[str]]:
        if self._folders is None:
            self._folders = {}
            for writer in self._root.writers():
                folder = self._root.writer_folder(writer)
                for segment in list_segments(self._root.env, folder):
                    for key in trajectory_keys(self._root.env, segment):
                        self._folders.setdefault(key, set()).add(folder)
        return self._folders


def open_source(journal: str | None, lake: str | None, tenant: str) -> EventSource:
    """Return the source that the caller named: a lake, else a root. Raises `UserError` where neither can be opened."""
    if lake is None:
        assert journal is not None
        return RootSource(Root.open(journal, create=False), tenant)
    for point in entry_points(group=SOURCE_GROUP):
        if point.name == SOURCE_NAME:
            return cast(EventSource, point.load()(lake, tenant))
    raise UserError(
        f"nothing installed can read a lake (entry point '{SOURCE_NAME}' of '{SOURCE_GROUP}'); "
        "reinstall trajlake, or export from a root with --journal",
        exit_code=EXIT_COULD_NOT_RUN,
    )


def matching(source: EventSource, wanted: list[str]) -> Iterator[str]:
    """Yield the ids that `wanted` names; a name that ends in `*` stands for every id that begins so."""
    everything: list[str] | None = None
    for name in wanted:
        if not name.endswith("*"):
            yield name
            continue
        everything = source.trajectory_ids() if everything is None else everything
        found = [one for one in everything if one.startswith(name[:-1])]
        if not found:
            raise UserError(f"no trajectory begins with {name[:-1]!r}")
        yield from found
