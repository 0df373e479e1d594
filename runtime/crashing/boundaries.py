"""The boundaries of one life: before and after the parts of the world are asked for something. One of them kills.

The parts are those of `agent.ports.Ports`, each behind a stand-in that counts and passes everything on. What the lease
keeper's thread does by the clock is no boundary.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from trajlake.schemas.envelope import Event

from ..agent.ports import Ports
from ..env import Env

KEEPER_THREAD = "trajlake-lease-keeper"


class Boundaries:
    """Counts, writes one line per boundary to a trace, and dies at number `kill_at` (from 1; 0: never)."""

    def __init__(self, kill_at: int, trace_path: str) -> None:
        self.kill_at, self.count = kill_at, 0
        self.wait_until_alone: Callable[[], None] = lambda: None
        self.intents: list[tuple[str, int]] = []
        self.durable: set[tuple[str, int]] = set()
        self._trace = os.open(trace_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()

    def hit(self, label: str) -> None:
        """One more boundary. The process dies here, and no other thread passes another one, if it is the chosen one."""
        if threading.current_thread().name == KEEPER_THREAD:
            return
        with self._lock:
            self.count += 1
            os.write(self._trace, f"{label}\n".encode())
            if self.count == self.kill_at:
                self.wait_until_alone()
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()

    def watched(self, ports: Ports, clock: Env) -> Ports:
        """The same world, counted; `clock` is the one the agent's core sees."""
        around: dict[str, Any] = {
            "log": WatchedLog(ports.log, self),
            "blobs": Around(ports.blobs, self, {"put": "blob"}),
            "leases": Around(ports.leases, self, {"acquire": "lease taken", "release": "lease released"}),
            "mail": Around(ports.mail, self, {"delete": "mail deleted"}),
            "keeper": Around(ports.keeper, self, {"release": "lease let go"}),
        }
        if ports.checkpoints is not None:
            around["checkpoints"] = Around(ports.checkpoints, self, {"note": "checkpoint", "remove_old": "checkpoints"})
        return replace(ports, env=clock, **around)


class Around:
    """Passes everything on; the named methods are boundaries, before and after."""

    def __init__(self, part: Any, boundaries: Boundaries, named: dict[str, str]) -> None:
        self._part, self._boundaries, self._named = part, boundaries, named

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        label = self._named.get(name)
        if label is None:
            return found

        def around(*args: Any, **kwargs: Any) -> Any:
            self._boundaries.hit(f"before: {label}")
            value = found(*args, **kwargs)
            self._boundaries.hit(f"after: {label}")
            return value

        return around


class WatchedLog:
    """A log whose appends and barriers are boundaries; it knows which intents are durable."""

    def __init__(self, log: Any, boundaries: Boundaries) -> None:
        self._log, self._boundaries = log, boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, events: Sequence[Event], *args: Any, **kwargs: Any) -> Any:
        words = " ".join(event.type for event in events)
        self._boundaries.hit(f"before: append {words}")
        ticket = self._log.append(events, *args, **kwargs)
        self._boundaries.hit(f"after: append {words}")
        return WatchedTicket(ticket, self._boundaries, events)


class WatchedTicket:
    """A ticket whose wait is a boundary. Appends are in order, so the last ticket covers those before it."""

    def __init__(self, ticket: Any, boundaries: Boundaries, events: Sequence[Event]) -> None:
        self._ticket, self._boundaries = ticket, boundaries
        boundaries.intents += [
            (f"{event.trajectory_id}:{event.body.action_id}", event.body.attempt)
            for event in events
            if event.type == "ToolIntent"
        ]
        self._covers = len(boundaries.intents)
        self._what = events[-1].type if events else "nothing"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ticket, name)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        self._boundaries.hit(f"before: barrier {self._what}")
        value = self._ticket.wait(*args, **kwargs)
        self._is_durable()
        return value

    def __await__(self) -> Generator[Any, None, Any]:
        self._boundaries.hit(f"before: barrier {self._what}")
        value = yield from self._ticket.__await__()
        self._is_durable()
        return value

    def _is_durable(self) -> None:
        self._boundaries.durable.update(self._boundaries.intents[: self._covers])
        self._boundaries.hit(f"after: barrier {self._what}")
