"""A real object store for tests: SeaweedFS, one server for a test run, shared by xdist's workers; a prefix per test."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

ACCESS_KEY, SECRET_KEY = "trajlake-test", "trajlake-test-secret"
BUCKET = "lake"
START_MAX_S = 180
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


class ObjectStore:
    """A running `weed`; `kill` and `start` again keep its data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # With their gRPC ports (10,000 above) below what the system hands out to clients: no one else binds them.
        base = random.SystemRandom().randrange(12_000, 20_000)
        while not all(_is_free(port) for port in range(base, base + 4)):
            base = random.SystemRandom().randrange(12_000, 20_000)
        self._base = base
        self.endpoint = f"http://127.0.0.1:{base}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)
        identity = {
            "name": "test", "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }  # fmt: skip
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        weed = Path(sys.executable).with_name("weed")
        ports = zip(("s3", "master", "volume", "filer"), range(self._base, self._base + 4), strict=True)
        # Run in its folder: the filer keeps its own database in the working directory. A master that was killed waits
        # for an election among itself before it leads again, by default for up to 20 s.
        self.process = subprocess.Popen(
            [str(weed), "server", "-ip=127.0.0.1", "-dir=data", "-s3", "-filer", "-s3.config=s3.json",
             "-master.electionTimeout=1s", "-master.telemetry=false", "-volume.max=200",
             "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0",
             *(f"-{name}.port={port}" for name, port in ports)],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=(self.folder / "log").open("ab"), start_new_session=True,
        )  # fmt: skip
        self._wait()

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _wait(self) -> None:
        import botocore.session

        session = botocore.session.Session()
        session.set_credentials(ACCESS_KEY, SECRET_KEY)
        client = session.create_client("s3", endpoint_url=self.endpoint, region_name="us-east-1")
        ends = time.monotonic() + START_MAX_S
        while True:
            try:
                with contextlib.suppress(
                    client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou
                ):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"1")
                return
            except Exception:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.2)


@functools.cache
def shared_endpoint() -> str:
    """Start the store of this run, or join it: the process that started it stops it after the others are gone."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"trajlake-objects-{run}"
    folder.mkdir(exist_ok=True)
    lock = (folder / "lock").open("a+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.seek(0)
    endpoint = lock.read().strip()
    if not endpoint or not _answers(endpoint):
        store = ObjectStore(folder)
        store.start()
        endpoint = store.endpoint
        lock.truncate(0)
        lock.write(endpoint)
        lock.flush()
        (folder / "pid").write_text(str(store.process.pid if store.process else 0))
    users = folder / "users"
    users.mkdir(exist_ok=True)
    (users / str(os.getpid())).touch()
    fcntl.flock(lock, fcntl.LOCK_UN)
    atexit.register(_leave, folder)
    return endpoint


def _leave(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError), (folder / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "users" / str(os.getpid())).unlink(missing_ok=True)
        if not any((folder / "users").iterdir()):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def fresh_url(endpoint: str | None = None) -> str:
    """A URL with a prefix that nobody used, for the stores behind the runtime's protocols."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}?endpoint_url={endpoint or shared_endpoint()}"


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    for one in (port, port + 10_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", one)) == 0:
                return False
    return True
