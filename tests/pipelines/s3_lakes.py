"""Lakes and landings in a real object store, for tests: a prefix of their own, and what stands below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.object_store import BUCKET, CREDENTIALS, fresh_url, shared_endpoint
from tests.support.proxy_process import ProxyProcess, faulty_process
from trajlake.ingest.stores.object_client import ObjectClient
from trajlake.pipelines.lakehouse import object_places


class Bucket:
    """A prefix that nobody used, with a landing and a lake below it. `use` says by which address they are reached."""

    def __init__(self, monkeypatch: Any, staging: Path, endpoint: str = "") -> None:
        self._monkeypatch = monkeypatch
        self._endpoint = endpoint or shared_endpoint()
        self._prefix = fresh_url(self._endpoint).partition("?")[0].removeprefix(f"s3://{BUCKET}/")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TRAJLAKE_STAGING", str(staging))
        self.use(self._endpoint)

    @property
    def landing(self) -> str:
        return f"s3://{BUCKET}/{self._prefix}/landing"

    @property
    def lake(self) -> str:
        return f"s3://{BUCKET}/{self._prefix}/lake"

    def use(self, endpoint: str) -> None:
        """Reach the store at this address from now on, as a new process would."""
        self._monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        object_places._lakes.clear()
        object_places._bucket.cache_clear()

    def client(self, below: str = "") -> ObjectClient:
        """Return a client of the prefix that meets no fault."""
        folder = f"/{below}" if below else ""
        return ObjectClient(f"s3://{BUCKET}/{self._prefix}{folder}?endpoint_url={self._endpoint}")

    def ship(self, landing: Path) -> None:
        """Put every file of a local landing where a shipper would."""
        client = self.client("landing")
        for at, _, names in os.walk(landing):
            for name in names:
                path = Path(at) / name
                client.put(path.relative_to(landing).as_posix(), path.read_bytes())

    @contextmanager
    def through(self, *faults: str, **more: Any) -> Iterator[ProxyProcess]:
        """Reach the store through a proxy that goes wrong; see `faulty_process`."""
        with faulty_process(self._endpoint, list(faults), **more) as proxy:
            self.use(proxy.endpoint)
            try:
                yield proxy
            finally:
                self.use(self._endpoint)

    def keys(self, below: str = "") -> list[str]:
        return [one.key for one in self.client(below).list("")]
