"""What line-by-line session formats share: reading lines, torn and corrupt ones, one trajectory per file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trajlake.schemas.events import ImportSource, ParentAction

from ..sources import Line, Source
from .build import Trajectory, first_record_hash, label, session_id
from .contract import BadSource, Item, Loss, ReadOptions
from .json_text import NotJson, text_of, value_of


class Entry(NamedTuple):
    """One decoded line: its object, its bytes, its time and its place."""

    value: dict[str, Any]
    data: bytes
    at: int | None
    place: str


class SessionLines:
    """Reads a file of one session. Subclasses name the session (`opening`) and take one entry after another.

    What comes before the session is named waits and becomes its first kept records.
    """

    name = ""

    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        self.source = source
        self.options = options
        self.loss = loss
        self.ready: list[Item] = []
        self.first_value: dict[str, Any] = {}
        self._trajectory: Trajectory | None = None
        self._later: list[tuple[str, Callable[[], None]]] | None = None

    # -- for subclasses

    def opening(self, entry: Entry) -> Trajectory:
        """Return the trajectory of the file, named from its first entry."""
        raise NotImplementedError

    def time_of(self, value: dict[str, Any]) -> int | None:
        """Return the time of an entry."""
        raise NotImplementedError

    def take(self, entry: Entry) -> None:
        """Turn an entry into events; tally it."""
        raise NotImplementedError

    def finish(self) -> None:
        """The file ends here: emit or hold back what was open."""

    @property
    def trajectory(self) -> Trajectory:
        assert self._trajectory is not None
        return self._trajectory

    def open(self, session: str, entry: Entry, *, producer_version: Any = None, parent: str = "") -> Trajectory:
        """Return a new trajectory `<format>/<session>`; raise `BadSource` for a hostile name."""
        above = session_id(self.name, parent, self.source.name, entry.place) if parent else ""
        trajectory = Trajectory(
            session_id(self.name, session, self.source.name, entry.place),
            ImportSource(
                format=self.name,
                session=session,
                first_record_hash=first_record_hash(entry.data),
                producer=self.name,
                producer_version=label(producer_version),
            ),
            self.ready.append,
            self.loss,
            agent=self.name,
            parent=ParentAction(tenant=self.options.tenant, trajectory_id=above) if above else None,
        )
        trajectory.place = entry.place
        return trajectory

    def unnamed(self, entry: Entry) -> str:
        """Return a session name for a file that has none: it derives from the first record."""
        return f"unnamed-{first_record_hash(entry.data)[:16]}"

    def keep(self, kind: str, entry: Entry) -> None:
        """Keep an entry raw, after the open reply if there is one."""
        self.later(kind, lambda: self.keep_now(kind, entry))

    def keep_now(self, kind: str, entry: Entry) -> None:
        """Keep an entry raw here."""
        self.trajectory.keep(kind, text_of(entry.data), at=entry.at, place=entry.place)
        self.loss.keep(kind)

    # -- an open reply and what waits behind it

    def wait(self) -> None:
        """From now on everything waits behind an open reply."""
        if self._later is None:
            self._later = []

    def later(self, kind: str, action: Callable[[], None]) -> None:
        """Do it now, or after the open reply; `kind` is for the tally if it never comes to that."""
        if self._later is None:
            action()
        else:
            self._later.append((kind, action))

    def release(self) -> None:
        """The reply is out: do what waited."""
        waiting, self._later = self._later or [], None
        for _, action in waiting:
            action()

    def hold_back(self) -> None:
        """The reply stays unfinished: count what waits as held back."""
        for kind, _ in self._later or []:
            self.loss.hold(kind)

    # -- the loop

    def read(self) -> Iterator[Item]:
        for line in self.source.lines(self.loss.problem):
            self._line(line)
            if self.ready:
                yield from self.ready
                self.ready.clear()
        if self._trajectory is None:
            raise BadSource(self.source.name, "", f"holds no {self.name} record")
        self.finish()
        if not (self.options.following and not self.trajectory.replies):
            self.trajectory.settle()
        yield from self.ready

    def _line(self, line: Line) -> None:
        if not line.data.strip():
            self.loss.skip("blank line")
            return
        place = f"line {line.number}"
        try:
            value = value_of(line.data)
        except NotJson as error:
            if not line.whole:
                self.loss.problem(place, f"the last line is cut short ({error}); earlier lines stand")
                self.loss.skip("torn last line")
                return
            self.loss.problem(place, f"is no JSON ({error}); kept as it is")
            self._keep_odd("corrupt line", line, place)
            return
        if not isinstance(value, dict):
            self._keep_odd("not an object", line, place)
            return
        entry = Entry(value, line.data, self.time_of(value), place)
        if self._trajectory is None:
            self._trajectory = self.opening(entry)
            self.first_value = value
        self.take(entry)

    def _keep_odd(self, kind: str, line: Line, place: str) -> None:
        entry = Entry({}, line.data, None, place)
        if self._trajectory is None:
            raise BadSource(self.source.name, place, f"is no {self.name} record ({kind})")
        self.keep(kind, entry)
