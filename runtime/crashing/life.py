"""One life of the user's agent, in a child process: its world counted, its tools and itself watched. Or one replay.

Everything is put in place before the agent's module is imported: `Journal.open` opens a scratch root, chance is noted,
waits are skipped (no other process is alive, so nothing is waited for), and a request that was sent before gets the
reply it got then.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.schemas import values

from ..agent import driver_async, driver_sync
from ..agent.requests import Sleep
from ..env import Env
from ..journal import Journal
from .boundaries import Boundaries
from .ledger import Ledger
from .places import Place, Told
from .visits import Visits
from .witness import Witness

if TYPE_CHECKING:
    from ..commands.run import Runner


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every life of a campaign has in common. `load` imports the agent's module and returns what it finds."""

    load: Callable[[], Runner]
    trajectory_id: str
    task: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    replies: str = ""
    import_path: str = ""


def live(plan: Plan, place: Place, life: int, kill_at: int) -> Told:
    """Run the agent once, as its own program would; return what came of it (unless it is killed before)."""
    boundaries = Boundaries(kill_at, place.trace(life))
    ledger = Ledger(place.ledger)
    visits = Visits(life, ledger, boundaries, place)
    witness = visits.witness = Witness(place.area, visits.harness_acted)
    _settle_in(plan, place)
    witness.install()
    clock = Clock()
    _redirect(place, functools.partial(boundaries.watched, clock=clock))
    _skip_waits(clock)
    runner = plan.load()
    witness.install_after_import()
    for tool in runner.journal.tools.values():
        visits.watch(tool)
    _watch_models(runner, plan.replies, boundaries)
    boundaries.wait_until_alone = visits.wait_until_alone
    options = dict(plan.options)
    if place.workspace and any(tool.effect == "local" for tool in runner.journal.tools.values()):
        options["workspace"] = os.path.join(place.files, place.workspace)
    watched = type(runner)(_watched(runner.agent, witness), runner.journal, runner.model)
    with runner.journal:
        try:
            outcome = watched.run(plan.trajectory_id, task=plan.task, **options)
        except Exception as error:  # noqa: BLE001 - whatever the run raises is what came of it
            return Told(error=f"{type(error).__name__}: {error}", error_type=type(error).__name__,
                        boundaries=boundaries.count)  # fmt: skip
        finally:
            witness.agent_runs = False
    waiting = [{"kind": one.kind, "action_id": one.action_id, "tool": one.tool} for one in outcome.waiting_for]
    result = values.to_tree_lossy(outcome.result)[0]
    return Told(status=outcome.status, result=result, waiting=waiting, boundaries=boundaries.count)


def replay_life(plan: Plan, place: Place, *, cold: bool) -> Told:
    """Replay what the lives of a place left, in a process of its own; return the verdict."""
    from ..replaying.replay_run import replay
    from ..replaying.report import around
    from ..replaying.sources import RootSource

    _settle_in(plan, place)
    _redirect(place, lambda ports: ports)
    runner = plan.load()
    journal = runner.journal
    record = RootSource(journal.root, journal.tenant).record(plan.trajectory_id)
    if record is None:
        return Told(verdict="refused", report="nothing is recorded")
    report = replay(runner.agent, record, journal=journal, cold=cold, intercept=True)
    reads = [note.partition(" (record with")[0] for note in report.notes if "past the log" in note]
    how = "each turn entered afresh" if cold else "in a new process"
    recorded, got = around(report.expected, report.got)
    text = f"turn {report.turn}, {report.operation}: recorded {recorded}; replayed, {how}: {got}"
    return Told(verdict=report.verdict, report=text, reads=reads)


def _settle_in(plan: Plan, place: Place) -> None:
    os.chdir(place.files)
    os.environ["TRAJLAKE_CRASHTEST"] = "1"
    os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(place.kept, "tmp")
    sys.path[:] = [plan.import_path, *(path for path in sys.path if path)]


class Clock(Env):
    """The real machine, whose boot-time clock can be moved on."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def boottime_us(self) -> int:
        return super().boottime_us() + round(self.skipped_s * 1e6)


def _redirect(place: Place, watched: Callable[[Any], Any]) -> None:
    """Make every journal of this process one of the place: other roots, no replica, leases and mail in files."""
    opened: dict[str, str] = {}
    open_journal, make_ports = Journal.open, Journal._make_ports

    def open_here(_: type[Journal], root: Any, /, **options: Any) -> Journal:
        here = opened.setdefault(os.fspath(root), os.path.join(place.kept, f"root-{len(opened) + 1}"))
        for name in ("leases", "replica", "replicate"):
            options.pop(name, None)
        return open_journal(here, **options)

    def make(self: Journal) -> Any:
        ports = watched(make_ports(self))
        if self._keeper is not None:
            self._keeper.store = ports.leases
        return ports

    Journal.open = classmethod(open_here)  # type: ignore[assignment,method-assign]
    Journal._make_ports = make  # type: ignore[method-assign]


def _skip_waits(clock: Clock) -> None:
    plain, looped = driver_sync.performer, driver_async.performer

    def without_waits(perform: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def skipping(request: Any) -> Any:
            if isinstance(request, Sleep):
                clock.skipped_s += request.seconds
                return None
            return perform(request)

        return skipping

    driver_sync.performer = lambda env: without_waits(plain(env))
    driver_async.performer = lambda: without_waits(looped())


def _watch_models(runner: Runner, folder: str, boundaries: Boundaries) -> None:
    """Replies to requests that were sent before come out of `folder`; a send is a boundary, before and after."""
    module = sys.modules[runner.agent.__module__]
    kinds = {type(value) for value in (*vars(module).values(), runner.model) if _is_model(value)}
    for kind in kinds:
        for name in ("send", "asend"):
            real = getattr(kind, name, None)
            if real is not None:
                make = _kept_async if inspect.iscoroutinefunction(real) else _kept
                setattr(kind, name, make(real, folder, boundaries))


def _is_model(value: Any) -> bool:
    if inspect.ismodule(value) or inspect.isclass(value):
        return False
    return all(hasattr(value, one) for one in ("name", "version", "format", "request"))


def _path_of(folder: str, request: bytes) -> str:
    return os.path.join(folder, hashlib.sha256(bytes(request)).hexdigest())


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _keep(path: str, reply: bytes) -> None:
    partial = f"{path}.{os.getpid()}"
    with open(partial, "wb") as file:
        file.write(reply)
    os.replace(partial, path)


_SENDING: Final[ContextVar[Any]] = ContextVar("sending", default=None)
"""The model whose send is under way: what its classes call of each other meanwhile is part of that one send."""


@contextlib.contextmanager
def _sending(model: Any) -> Iterator[None]:
    before = _SENDING.set(model)
    try:
        yield
    finally:
        _SENDING.reset(before)


def _kept(real: Callable[..., Any], folder: str, boundaries: Boundaries) -> Callable[..., Any]:
    def send(self: Any, request: bytes, on_delta: Any = None) -> Any:
        if _SENDING.get() is self:
            return real(self, request, on_delta)
        boundaries.hit("before: model")
        path = _path_of(folder, request)
        reply = _read(path)
        if reply is None:
            with _sending(self):
                reply = real(self, request, on_delta)
            _keep(path, bytes(reply))
        boundaries.hit("after: model")
        return reply

    return send


def _kept_async(real: Callable[..., Any], folder: str, boundaries: Boundaries) -> Callable[..., Any]:
    async def asend(self: Any, request: bytes, on_delta: Any = None) -> Any:
        if _SENDING.get() is self:
            return await real(self, request, on_delta)
        boundaries.hit("before: model")
        path = _path_of(folder, request)
        reply = _read(path)
        if reply is None:
            with _sending(self):
                reply = await real(self, request, on_delta)
            _keep(path, bytes(reply))
        boundaries.hit("after: model")
        return reply

    return asend


def _watched(agent: Callable[..., Any], witness: Witness) -> Callable[..., Any]:
    """The agent, under a name that tells its own frames from ours."""
    if inspect.iscoroutinefunction(agent):

        @functools.wraps(agent)
        async def run_watched_async(t: Any) -> Any:
            witness.agent_runs = True
            return await agent(t)

        return run_watched_async

    @functools.wraps(agent)
    def run_watched(t: Any) -> Any:
        witness.agent_runs = True
        return agent(t)

    return run_watched


def write_told(path: str, told: Told) -> None:
    """Leave word, in one rename."""
    with open(path + ".part", "wb") as file:
        file.write(msgspec.json.encode(told))
    os.replace(path + ".part", path)
