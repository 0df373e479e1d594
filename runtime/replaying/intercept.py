"""Clock, chance and listings that harness code reads past its turn: recorded while it runs, served in a replay.

Each read becomes an `InputRead(kind="intercepted")`:

    journal.run(agent, id, task=..., intercept=True)
    replay(agent, events, journal=journal, intercept=True)

The functions are replaced in their modules, and where a module of the harness bound them by name (`from time import
time`). A record made so says so, and its replay intercepts by itself. Only a call made by the agent's own code, in its
own thread, is caught; the standard library, tool bodies, policies and this runtime get the real thing. One
interception per process at a time.

| caught                                                           | recorded as                                      |
|------------------------------------------------------------------|--------------------------------------------------|
| `time.time`, `monotonic`, `perf_counter`, `process_time`, `*_ns` | the number                                       |
| `datetime.now`, `utcnow`, `today`, `date.today`                  | the moment                                       |
| `random.*` (module functions)                                    | one seed per turn, at its first use              |
| `secrets.*`, `uuid.uuid1`, `uuid.uuid4`, `os.urandom`            | the value                                        |
| `os.getpid`                                                      | the number                                       |
| `os.listdir`, `Path.iterdir`, `glob.glob`                        | the names, sorted                                |

Not caught, and named in the report: what was bound in a default argument, a closure or an attribute; `Random()` objects
of the harness's own; C extensions; files, sockets and processes that the harness opens itself (seen by an audit hook);
`os.scandir` and `os.walk`; environment variables.
"""

from __future__ import annotations

import datetime  # noqa: ICN001 - the module that is changed, by its own name
import functools
import glob
import inspect
import os
import pathlib
import random
import secrets
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ..agent.errors import Misuse
from ..agent.inputs import read_input
from ..agent.session import Session
from .report import Report

KIND: Final = "intercepted"
PLAIN: Final[dict[types.ModuleType, tuple[str, ...]]] = {
    time: ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
           "process_time_ns"),
    os: ("urandom", "getpid"),
    uuid: ("uuid1", "uuid4"),
    secrets: ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits"),
}  # fmt: skip
"""Functions whose value is recorded as it is (a UUID as text)."""
SEEDED: Final = (
    "random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "gauss", "normalvariate",
    "betavariate", "expovariate", "triangular", "getrandbits", "randbytes", "lognormvariate", "vonmisesvariate",
    "gammavariate", "paretovariate", "weibullvariate",
)  # fmt: skip
STDLIB: Final = sys.stdlib_module_names | {"_frozen_importlib", "_frozen_importlib_external"}
CALLERS: Final = frozenset({"run_caught", "run_caught_async", "_call", "_call_async"})
"""The functions that call the agent: a read above one of these, with nothing of the runtime between, is its own."""
OPENED: Final = {
    "open": "opened", "socket.connect": "connected to", "subprocess.Popen": "started", "os.scandir": "listed",
}  # fmt: skip

_active: Interception | None = None
_hooked = False


class Interception:
    """Replaces the functions while it is entered. `recording`: reads are events, served or made; else only noted."""

    def __init__(self, s: Session, *, recording: bool) -> None:
        self._s, self._recording = s, recording
        self._undo: list[tuple[Any, str, Any]] = []
        self._seeded: tuple[int, int] | None = None
        self.unlogged: dict[tuple[int, str], int] = {}
        self.seen: dict[str, None] = {}
        self._bound: list[str] = []

    def __enter__(self) -> Interception:
        global _active
        if _active is not None:
            raise Misuse("intercept=True: another interception is at work in this process; one at a time")
        _active = self
        _hook()
        for module, names in PLAIN.items():
            for name in names:
                self._replace(module, name, self._plain(module, name))
        for name in SEEDED:
            self._replace(random, name, self._with_seed(name))
        self._replace(secrets, "choice", self._index_of("secrets.choice", secrets.choice))
        self._replace(datetime, "datetime", _clock_class(datetime.datetime, self))
        self._replace(datetime, "date", _date_class(datetime.date, self))
        self._replace(os, "listdir", self._listing("os.listdir", os.listdir))
        self._replace(glob, "glob", self._listing("glob.glob", glob.glob))
        self._replace(pathlib.Path, "iterdir", _iterdir(self, pathlib.Path.iterdir))
        self._rebind()
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)
        self._undo.clear()
        _active = None

    # -- reads -----------------------------------------------------------------------------------------------------

    def read(self, name: str, produce: Callable[[], Any]) -> Any:
        """One read by the harness: served or recorded; where the record has none, noted with its turn."""
        if self._recording:
            return read_input(self._s, KIND, name, produce)
        place = self._s.turn, name
        self.unlogged[place] = self.unlogged.get(place, 0) + 1
        return produce()

    def is_harness(self, frame: types.FrameType | None = None) -> bool:
        """Whether the caller of a replaced function (or `frame`) is the agent's own code, before its end."""
        frame = frame or sys._getframe(2)
        if _top(frame) in STDLIB or self._s.ended is not None or self._s.unwinding is not None:
            return False
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("trajlake.runtime"):
                return frame.f_code.co_name in CALLERS
            frame = frame.f_back
        return False

    def _plain(self, module: types.ModuleType, name: str) -> Callable[..., Any]:
        real = getattr(module, name)
        label = f"{module.__name__}.{name}"
        is_uuid = module is uuid

        def caught(*args: Any, **kwargs: Any) -> Any:
            if not self.is_harness():
                return real(*args, **kwargs)
            value = self.read(label, lambda: str(real(*args, **kwargs)) if is_uuid else real(*args, **kwargs))
            return uuid.UUID(value) if is_uuid else value

        return caught

    def _with_seed(self, name: str) -> Callable[..., Any]:
        real = getattr(random, name)

        def caught(*args: Any, **kwargs: Any) -> Any:
            if self.is_harness():
                place = id(self._s.table), self._s.turn
                if self._seeded != place:
                    self._seeded = place
                    random.seed(self.read("random.seed", lambda: int.from_bytes(_real_urandom(8))))
            return real(*args, **kwargs)

        return caught

    def _index_of(self, label: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def caught(sequence: Any) -> Any:
            if not self.is_harness():
                return real(sequence)
            return sequence[self.read(label, lambda: real(range(len(sequence))))]

        return caught

    def _listing(self, label: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def caught(*args: Any, **kwargs: Any) -> Any:
            if not self.is_harness():
                return real(*args, **kwargs)
            return self.read(f"{label} {args[0] if args else '.'}", lambda: sorted(real(*args, **kwargs)))

        return caught

    # -- putting in place ------------------------------------------------------------------------------------------

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)))
        setattr(owner, name, value)

    def _rebind(self) -> None:
        """Replace what modules of the harness bound by name; note what is bound where it cannot be replaced."""
        real = {id(value): (owner, name) for owner, name, value in self._undo}
        for module in list(sys.modules.values()):
            name = getattr(module, "__name__", "")
            if not isinstance(module, types.ModuleType) or _foreign(name, module):
                continue
            for attribute, value in list(vars(module).items()):
                found = real.get(id(value))
                if found is not None:
                    self._replace(module, attribute, getattr(*found))
                elif isinstance(value, types.FunctionType):
                    kept = [*(value.__defaults__ or ()), *(cell.cell_contents for cell in _filled(value))]
                    known = [real[id(one)] for one in kept if id(one) in real]
                    self._bound += [f"{name}.{attribute} keeps {_label(one)}" for one in known]

    # -- what the report says ----------------------------------------------------------------------------------------

    def notes(self) -> tuple[str, ...]:
        """What was read past the log, and what could not be intercepted."""
        logged = [
            f"turn {turn}: {name} was read {count} times past the log (record with intercept=True, or read it through "
            "the turn)"
            for (turn, name), count in self.unlogged.items()
        ]
        return (*logged, *(f"not intercepted: {what}" for what in (*self.seen, *self._bound)))

    def blame(self, report: Report) -> Report:
        """Name the unlogged read of the turn where a difference stands: it is the first suspect."""
        suspects = [name for turn, name in self.unlogged if turn == report.turn]
        if not suspects:
            return report
        return replace(report, component=f"{report.component}; read past the log: {', '.join(suspects)}")


_real_urandom: Final = os.urandom


def _top(frame: types.FrameType) -> str:
    name = frame.f_globals.get("__name__", "")
    return "" if name == "__main__" else str(name).partition(".")[0]


def _label(found: tuple[Any, str]) -> str:
    return f"{found[0].__name__}.{found[1]}"


def _filled(function: types.FunctionType) -> Iterator[types.CellType]:
    for cell in function.__closure__ or ():
        try:
            _ = cell.cell_contents
        except ValueError:
            continue
        yield cell


def _foreign(name: str, module: types.ModuleType) -> bool:
    """The standard library, this project, and installed packages keep the real functions."""
    top = name.partition(".")[0]
    file = getattr(module, "__file__", None) or ""
    return (top in STDLIB and top != "__main__") or top in ("trajlake", "_pytest", "pytest") or "site-packages" in file


def _clock_class(real: type[datetime.datetime], caught: Interception) -> type:
    """A `datetime` whose clock is caught; whatever it makes is a plain `datetime`."""

    class Kind(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

    class Caught(real, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            made: Any = functools.partial(real.now, tz)
            return caught.read("datetime.now", made) if caught.is_harness() else made()

        @classmethod
        def utcnow(cls) -> Any:
            made: Callable[[], Any] = lambda: real.now(datetime.UTC).replace(tzinfo=None)  # noqa: E731
            return caught.read("datetime.utcnow", made) if caught.is_harness() else made()

        @classmethod
        def today(cls) -> Any:
            return caught.read("datetime.today", real.now) if caught.is_harness() else real.now()

    for name in ("fromtimestamp", "fromisoformat", "strptime", "combine", "fromordinal", "utcfromtimestamp"):
        setattr(Caught, name, getattr(real, name))
    Caught.__name__ = Caught.__qualname__ = "datetime"
    return Caught


def _date_class(real: type[datetime.date], caught: Interception) -> type:
    """A `date` whose `today` is caught."""

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Caught(real, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return caught.read("date.today", real.today) if caught.is_harness() else real.today()

    for name in ("fromtimestamp", "fromisoformat", "fromordinal", "fromisocalendar"):
        setattr(Caught, name, getattr(real, name))
    Caught.__name__ = Caught.__qualname__ = "date"
    return Caught


def _iterdir(caught: Interception, real: Callable[..., Any]) -> Callable[..., Any]:
    def iterdir(self: pathlib.Path) -> Iterator[pathlib.Path]:
        if not caught.is_harness():
            return iter(real(self))
        names = caught.read(f"Path.iterdir {self}", lambda: sorted(path.name for path in real(self)))
        return iter([self / name for name in names])

    return iterdir


def _hook() -> None:
    """Install the audit hook, once per process: a hook cannot be taken out, so it looks who is active."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _active is None or event not in OPENED:
        return
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and _top(frame) in STDLIB:
        if _top(frame) in ("importlib", "_frozen_importlib", "_frozen_importlib_external", "linecache", "tokenize"):
            return
        frame = frame.f_back
    if frame is None or not _active.is_harness(frame):
        return
    what = args[1] if event == "socket.connect" else args[0]
    place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    _active.seen[f"the harness {OPENED[event]} {what!r} at {place}"] = None


def intercepted(agent: Callable[..., Any]) -> Callable[..., Any]:
    """Return an agent whose own reads are caught and recorded; `journal.run(..., intercept=True)` runs this one.

    Its first act is recorded too: so a replay knows that clock and chance are in the log, and serves them.
    """
    if inspect.iscoroutinefunction(agent):

        @functools.wraps(agent)
        async def run_caught_async(t: Any) -> Any:
            read_input(t._s, KIND, "on", lambda: True)
            with Interception(t._s, recording=True):
                return await agent(t)

        return run_caught_async

    @functools.wraps(agent)
    def run_caught(t: Any) -> Any:
        read_input(t._s, KIND, "on", lambda: True)
        with Interception(t._s, recording=True):
            return agent(t)

    return run_caught
