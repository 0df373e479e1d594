"""What leaves the process: during a tool's body, or past any body.

An audit hook sees files opened for writing, changes of names, connections and processes; sockets and TLS sockets are
asked what bytes they send; chance is noted where a body draws on it. A context variable says which body is running,
also in its tasks; a thread that a body starts itself is counted to it while no other runs.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import socket
import sys
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from .ledger import Seen

STDLIB: Final = sys.stdlib_module_names | {"_frozen_importlib", "_frozen_importlib_external"}
CHANGES: Final = {
    "os.remove": "removed", "os.rename": "renamed", "os.mkdir": "made the folder", "os.rmdir": "removed the folder",
    "os.link": "linked", "os.symlink": "linked", "os.truncate": "truncated", "os.chmod": "changed the mode of",
    "os.utime": "changed the times of",
}  # fmt: skip
STARTS: Final = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"}
WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REQUEST: Final = re.compile(rb"(GET|HEAD|OPTIONS|POST|PUT|PATCH|DELETE)\s+(\S+)")
HARMLESS: Final = (b"GET", b"HEAD", b"OPTIONS")
DRAWS: Final[dict[types.ModuleType, tuple[str, ...]]] = {
    uuid: ("uuid1", "uuid4"),
    secrets: ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice"),
    os: ("urandom",),
    random: ("random", "randint", "randrange", "choice", "getrandbits", "randbytes", "uniform", "sample"),
}
KEPT_MAX_BYTES: Final = 1 << 20
"""Bytes of a file up to which what a body added to it is compared."""
HARNESS: Final = frozenset({"run_watched", "run_watched_async"})
"""The functions that call the agent: what happens above one of these, with nothing of ours between, is its own."""

_body: ContextVar[Body | None] = ContextVar("trajlake_crashtest_body", default=None)


class Body:
    """What is seen of one run of a tool's body."""

    def __init__(self, key: str) -> None:
        self.key = key.encode()
        self.seen = Seen()
        self.alone = True
        self._sent = hashlib.sha256()
        self._any = False
        self._secret = False
        self._before: dict[str, bytes | None] = {}

    def sends(self, data: bytes) -> None:
        """Bytes leave on a connection."""
        if len(data) > 2 and data[0] in (0x14, 0x15, 0x16, 0x17) and data[1] == 3:
            self._secret = True
            return
        self._leaves(data)
        found = REQUEST.match(data)
        if found is not None:
            self.seen.requests.append(found[0].decode("ascii", "replace")[:200])

    def starts(self, argv: Any) -> None:
        """A process is started."""
        self._leaves(repr(argv).encode())

    def writes(self, path: str) -> None:
        """A file is about to be opened for writing."""
        if path not in self._before:
            self._before[path] = _content(path)

    def _leaves(self, data: bytes) -> None:
        self._any = True
        self._sent.update(len(data).to_bytes(8, "big") + data)
        if self.key and self.key in data:
            self.seen.key_sent = True

    def finish(self) -> Seen:
        """The body has ended: what it added to files counts as sent."""
        for path, before in self._before.items():
            after = _content(path)
            if before is None or after is None or not self.alone:
                self._secret = True
                continue
            self._leaves(after.removeprefix(before))
        if self._any and not self._secret:
            self.seen.sent = self._sent.hexdigest()
        return self.seen


def _content(path: str) -> bytes | None:
    try:
        if os.path.getsize(path) > KEPT_MAX_BYTES:
            return None
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError:
        return None


class Witness:
    """Watches this process from `install` to its end; one per process.

    `area` says of a path whether it is in the "workspace", "outside", or "" (not counted). `told` is called with what
    the agent's own code does, and where.
    """

    def __init__(self, area: Callable[[str], str], told: Callable[[str, str], None]) -> None:
        self._area, self._told = area, told
        self.running: list[Body] = []
        self.agent_runs = False

    def install(self) -> None:
        """Put hooks in place, before the agent's module is imported."""
        sys.addaudithook(self._audit)
        module: Any
        for module, names in DRAWS.items():
            for name in names:
                setattr(module, name, self._drawn(f"{module.__name__}.{name}", getattr(module, name)))
        for name in ("send", "sendall", "sendto", "sendmsg"):
            self._watch_socket(socket.socket, name)

    def install_after_import(self) -> None:
        """What is there only when the agent's module brought it."""
        ssl: Any = sys.modules.get("ssl")
        if ssl is not None:
            for name in ("send", "sendall"):
                self._watch_socket(ssl.SSLSocket, name)

    @contextmanager
    def during(self, body: Body) -> Iterator[None]:
        """Count what happens meanwhile to this body."""
        self.running.append(body)
        if len(self.running) > 1:
            for one in self.running:
                one.alone = False
        token = _body.set(body)
        try:
            yield
        finally:
            _body.reset(token)
            self.running.remove(body)

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _current(self) -> Body | None:
        body = _body.get()
        if body is not None:
            return body if body in self.running else None
        return self.running[0] if len(self.running) == 1 and not _is_ours() else None

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, int) or not isinstance(flags, int) or not flags & WRITES:
                return
            self._changed("opened for writing", path, opened=True)
        elif event in CHANGES:
            self._changed(CHANGES[event], args[0])
        elif event == "socket.connect":
            self._connected(args[1])
        elif event in STARTS:
            self._started(event, args)

    def _changed(self, how: str, path: Any, *, opened: bool = False) -> None:
        if not (self.running or self.agent_runs) or isinstance(path, int):
            return
        name = os.path.abspath(os.fsdecode(path))
        area = self._area(name)
        if not area or "__pycache__" in name:
            return
        body = self._current()
        if body is not None:
            if opened:
                body.writes(name)
            (body.seen.files if area == "workspace" else body.seen.outside).append(f"{how} {os.path.relpath(name)}")
        else:
            self._harness(f"{how} {os.path.relpath(name)}")

    def _connected(self, address: Any) -> None:
        if not (self.running or self.agent_runs):
            return
        words = f"connected to {':'.join(map(str, address[:2])) if isinstance(address, tuple) else address}"
        body = self._current()
        if body is not None:
            body.seen.unseen.append(words)
        else:
            self._harness(words)

    def _started(self, event: str, args: tuple[Any, ...]) -> None:
        if not (self.running or self.agent_runs):
            return
        argv = args[1] if event == "subprocess.Popen" else args[0]
        words = f"started {' '.join(map(os.fsdecode, argv)) if isinstance(argv, list | tuple) else argv!r}"[:200]
        body = self._current()
        if body is not None:
            body.starts(argv)
            body.seen.unseen.append(words)
        else:
            self._harness(words)

    def _harness(self, what: str) -> None:
        if not self.agent_runs:
            return
        frame = _innermost()
        if frame is not None and _is_agents(frame):
            self._told(what, f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")

    def _drawn(self, label: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            body = _body.get()
            if body is not None and _top(sys._getframe(1)) not in STDLIB and label not in body.seen.draws:
                body.seen.draws.append(label)
            return real(*args, **kwargs)

        drawn.__name__ = label.rpartition(".")[2]
        return drawn

    def _watch_socket(self, kind: type, name: str) -> None:
        real = getattr(kind, name)

        def sending(sock: Any, data: Any, *args: Any) -> Any:
            body = self._current() if self.running else None
            if body is not None and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
                body.sends(b"".join(data) if isinstance(data, list | tuple) else bytes(data))
            return real(sock, data, *args)

        setattr(kind, name, sending)


def _top(frame: types.FrameType) -> str:
    name = frame.f_globals.get("__name__", "")
    return "" if name == "__main__" else str(name).partition(".")[0]


def _innermost() -> types.FrameType | None:
    """The frame nearest to the event that is neither the standard library's nor this module's."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (_top(frame) in STDLIB or frame.f_globals.get("__name__") == __name__):
        if frame.f_globals.get("__name__") == "logging":
            return None
        frame = frame.f_back
    return frame


def _is_ours() -> bool:
    """Whether code of this project, other than this module, is on the stack."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("trajlake.") and name != __name__:
            return True
        frame = frame.f_back
    return False


def _is_agents(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("trajlake.runtime"):
            return frame.f_code.co_name in HARNESS
        frame = frame.f_back
    return False
