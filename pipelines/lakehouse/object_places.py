"""Object storage as a place of lakes and landings: whole objects at `s3://BUCKET/KEY`, by conditional puts.

Server and credentials come from where the AWS tools look: AWS_ENDPOINT_URL, AWS_PROFILE, AWS_ACCESS_KEY_ID, an instance
role. A put is whole or not there, and durable once answered, so nothing is synced here. Whatever the store says that
waiting cannot cure is one `LakeUnreachable` line; a server that ignores conditions is refused before the first write.
"""

from __future__ import annotations

import errno
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeUnreachable

if TYPE_CHECKING:
    from trajlake.ingest.stores.object_client import ObjectClient

SCHEME: Final = "s3://"
PROBES: Final = "_trajlake/probe"
STORE_OPTIONS: Final = {"max_retries": "8", "retry_timeout": "30s", "timeout": "20s", "connect_timeout": "5s"}
"""How long Delta's own store tries: about as long as ours."""

PATIENCE_S: Final = 20.0
OF_THIS_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS})
"""What a disk of this host says, of staging or a temporary folder; no store sets these numbers."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_lakes: dict[str, ObjectClient] = {}
"""Lakes and landings by URL. Each is asked about conditional puts below itself: a role may reach no more than that."""


def is_remote(path: str) -> bool:
    """Tell whether a path names an object, and not a file."""
    return path.startswith(SCHEME)


def checked_url(url: str, what: str) -> str:
    """Return `url` without a trailing slash; `LakeError` for what is no plain bucket and prefix."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise LakeError(f"{url}: a {what} is s3://BUCKET/PREFIX; name the server by AWS_ENDPOINT_URL or in the profile")
    if not parts.netloc or "@" in parts.netloc or not parts.path.strip("/") or "//" in parts.path.strip("/"):
        raise LakeError(f"{url}: a {what} is s3://BUCKET/PREFIX, with a prefix and without credentials")
    return f"{SCHEME}{parts.netloc}/{parts.path.strip('/')}"


def open_place(url: str) -> None:
    """Ask for what stands below `url` by a client of its own: its probe for conditional puts stands below it too."""
    if url not in _lakes:
        from trajlake.ingest.stores.object_client import ObjectClient

        with _lock:
            _lakes.setdefault(url, ObjectClient(url, probes=PROBES))


def require_conditional_puts(path: str) -> None:
    """Raise `LakeUnreachable` where the server ignores conditions, and so would let two launchers overwrite."""
    _telling(_client(path)[0].require_conditional_puts)()


def read(path: str) -> bytes:
    """Return an object's bytes. Raises `FileNotFoundError`."""
    client, key = _client(path)
    found = _telling(client.get)(key)
    if found is None:
        raise FileNotFoundError(2, "no such object", path)
    return found.data


def size(path: str) -> int:
    """Return an object's size. Raises `FileNotFoundError`."""
    client, key = _client(path)
    found = _telling(client.head)(key)
    if found is None:
        raise FileNotFoundError(2, "no such object", path)
    return found


def walk(folder: str) -> Iterator[tuple[str, int]]:
    """Yield (path below `folder`, size) of every object there, in order of their keys."""
    client, key = _client(f"{folder}/")
    listed = client.list(key)
    while True:
        one = _telling(next)(listed, None)
        if one is None:
            return
        yield one.key[len(key) :], one.size_bytes


def put_if_absent(path: str, data: bytes) -> bool:
    """Store an object unless one stands there; return whether this call did it."""
    client, key = _client(path)
    return _telling(client.put_if_absent)(key, data) is not None


def put(path: str, data: bytes) -> None:
    """Store an object in place of what stands there."""
    client, key = _client(path)
    _telling(client.put)(key, data)


def remove(path: str) -> None:
    """Remove an object; none there is fine."""
    client, key = _client(path)
    _telling(client.delete)(key)


def delta_options(path: str) -> dict[str, str]:
    """Return what deltalake must be told to reach `path`: server and the credentials of this moment."""
    return {**_access(path), **STORE_OPTIONS}


def polars_options(path: str) -> dict[str, Any]:
    """Return the keyword arguments by which Polars reads `path`."""
    return {"storage_options": _access(path), "credential_provider": None}


def arrow_filesystem(path: str) -> Any:
    """Return the file system by which Arrow reads `path`; its paths are BUCKET/KEY."""
    return _filesystem(tuple(sorted(_access(path).items())))


@functools.lru_cache(maxsize=4)
def _filesystem(items: tuple[tuple[str, str], ...]) -> Any:
    from pyarrow.fs import S3FileSystem

    access = dict(items)
    return S3FileSystem(
        access_key=access.get("aws_access_key_id"), secret_key=access.get("aws_secret_access_key"),
        session_token=access.get("aws_session_token"), endpoint_override=access["aws_endpoint_url"],
        region=access["aws_region"], connect_timeout=5, request_timeout=20,
    )  # fmt: skip


def tried(ask: Callable[[], T], path: str) -> T:
    """Return what a library reads of `path`; again where the store or the way to it failed, for as long as we wait.

    Raises `LakeUnreachable` for what waiting does not cure, and any error that is not about the store as it is.
    """
    ends_s = time.monotonic() + PATIENCE_S
    pause_s = 0.05
    while True:
        try:
            return ask()
        except Exception as error:
            if isinstance(error, LakeError | FileNotFoundError) or not _is_about_a_store(error):
                raise
            if hint(error) or time.monotonic() + pause_s > ends_s:
                raise LakeUnreachable(f"{path}: {first_line(error)}{hint(error)}; run it again") from error
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 2.0)


@contextmanager
def store_errors(*urls: str) -> Iterator[None]:
    """Turn what libraries raise about an unreachable store into one line, where one of `urls` is in object storage."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        if any(is_remote(url) for url in urls) and _is_about_a_store(error):
            shown = next(url for url in urls if is_remote(url))
            raise LakeUnreachable(f"{shown}: {first_line(error)}{hint(error)}; run it again") from error
        raise


def hint(error: BaseException) -> str:
    """Return what to do about an error of a store, as the end of its line; nothing where nobody knows."""
    text = f"{type(error).__name__} {error}"
    if re.search(r"(?i)expired ?token|requestexpired|tokenrefresh", text):
        return " (the credentials have expired: renew them)"
    if re.search(r"(?i)accessdenied|forbidden|\b403\b|invalidaccesskey|signaturedoesnotmatch|permission", text):
        return " (these credentials may not do that)"
    return ""


def first_line(error: BaseException) -> str:
    """Return what an error says, on one line and not too long."""
    text = " ".join(_COLOUR.sub("", str(error)).replace("\u21b3", ":").split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _is_about_a_store(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno not in OF_THIS_DISK
    module = type(error).__module__.partition(".")[0]
    text = f"{type(error).__name__} {error}".lower()
    marks = ("s3", "object store", "object-store", "http", "request", "aws", "connection", "response")
    return module in ("polars", "deltalake", "pyarrow", "botocore", "duckdb", "_internal") and any(
        mark in text for mark in marks
    )


def _telling(ask: Callable[P, T]) -> Callable[P, T]:
    def told(*arguments: P.args, **more: P.kwargs) -> T:
        from trajlake.runtime.replicas.replica import ReplicaError

        try:
            return ask(*arguments, **more)
        except ReplicaError as error:
            raise LakeUnreachable(f"{error}; run it again") from error

    return told


def _client(path: str) -> tuple[ObjectClient, str]:
    """Return who asks for `path`, and its key there."""
    for url in sorted(_lakes, key=len, reverse=True):
        if path.startswith(f"{url}/"):
            return _lakes[url], path[len(url) + 1 :]
    bucket, _, key = path.removeprefix(SCHEME).partition("/")
    return _bucket(bucket), key


@functools.cache
def _bucket(name: str) -> ObjectClient:
    from trajlake.ingest.stores.object_client import ObjectClient

    return ObjectClient(f"{SCHEME}{name}")


def _access(path: str) -> dict[str, str]:
    """Return server and credentials under the names that Delta's and Polars' stores share."""
    found = _telling(_client(path)[0].access)()
    access = {
        "aws_region": found.region, "aws_endpoint_url": found.endpoint,
        "aws_access_key_id": found.key_id, "aws_secret_access_key": found.secret,
    }  # fmt: skip
    if found.endpoint.startswith("http://"):
        access["aws_allow_http"] = "true"
    if found.token:
        access["aws_session_token"] = found.token
    return access
