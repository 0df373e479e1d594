"""Object storage by conditional puts: the few requests that the stores need, with faults told apart.

A request whose answer was lost may have been carried out. So a conditional put that is tried again and then refused
looks at what stands there: contents are made unique by their writers, so its own bytes mean that it had succeeded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

import botocore.config
import botocore.exceptions
import botocore.session

from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.store_urls import without_secrets

from .store_errors import StoreRefused, StoreUnreachable

T = TypeVar("T")

PATIENCE_S: Final = 20.0
ANSWER_TIMEOUT_S: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_STALE_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidToken", "TokenRefreshRequired"}
)


class Found(NamedTuple):
    """An object as it stands: bytes, version tag, and by the store's clock (whole seconds) when it was put and now."""

    data: bytes
    etag: str
    put_at_s: float
    now_s: float


class Listed(NamedTuple):
    """A key below the store's prefix, and its size."""

    key: str
    size_bytes: int


class Access(NamedTuple):
    """What another library needs to reach the same place. Empty texts: no such thing."""

    endpoint: str
    region: str
    key_id: str
    secret: str
    token: str


class ObjectClient:
    """One bucket and prefix, `s3://BUCKET/PREFIX`. Any thread may call. Keys are relative to the prefix.

    Credentials and region come from botocore's chain (AWS_PROFILE, AWS_ACCESS_KEY_ID, an instance role); the server
    from AWS_ENDPOINT_URL or, in the URL, `?endpoint_url=http://HOST:PORT`. `probes`: where the objects stand by which
    conditional puts are tried.
    """

    def __init__(self, url: str, *, env: Env = REAL_ENV, patience_s: float = PATIENCE_S, probes: str = "probe") -> None:
        parts = urlsplit(url)
        self.shown = without_secrets(url)
        self.bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._endpoint = dict(parse_qsl(parts.query)).get("endpoint_url")
        self._env = env
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._client: Any = None
        self._session: Any = None
        self._conditional: bool | None = None
        self._probes = probes

    # -- requests ----------------------------------------------------------------------------------------------

    def get(self, key: str) -> Found | None:
        """Return the object, None if there is none."""

        def get(client: Any) -> Found | None:
            try:
                answer = client.get_object(Bucket=self.bucket, Key=self._full(key))
            except botocore.exceptions.ClientError as error:
                if _status(error) == 404:
                    return None
                raise
            data = answer["Body"].read()
            if len(data) != answer["ContentLength"]:
                raise botocore.exceptions.IncompleteReadError(
                    actual_bytes=len(data), expected_bytes=answer["ContentLength"]
                )
            now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
            return Found(data, answer["ETag"], answer["LastModified"].timestamp(), now.timestamp())

        return self._tried(get)

    def head(self, key: str) -> int | None:
        """Return an object's size, None if there is none."""

        def head(client: Any) -> int | None:
            try:
                return int(client.head_object(Bucket=self.bucket, Key=self._full(key))["ContentLength"])
            except botocore.exceptions.ClientError as error:
                if _status(error) == 404:
                    return None
                raise

        return self._tried(head)

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, whole, in place of what is there."""
        self._tried(lambda client: client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data))

    def put_if_absent(self, key: str, data: bytes) -> str | None:
        """Store `data` if nothing stands there; return its tag, None if something does (unless it is this, see above).

        Raises `StoreRefused` where the server ignores conditions.
        """
        self.require_conditional_puts()
        return self._put_conditionally(key, data, {"IfNoneMatch": "*"})

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        """Store `data` if the object is still the one tagged `etag`; return the new tag, else None."""
        self.require_conditional_puts()
        return self._put_conditionally(key, data, {"IfMatch": etag})

    def delete(self, key: str) -> None:
        """Remove the object; none there is fine."""
        self._tried(lambda client: client.delete_object(Bucket=self.bucket, Key=self._full(key)))

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield every key that begins with `prefix`, in order."""
        token: dict[str, str] = {}
        while True:
            answer = self._page(prefix, token)
            for one in answer.get("Contents", ()):
                yield Listed(one["Key"][len(self._full("")) :], int(one["Size"]))
            if not answer.get("IsTruncated"):
                return
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    def _page(self, prefix: str, token: dict[str, str]) -> Any:
        return self._tried(
            lambda client: client.list_objects_v2(Bucket=self.bucket, Prefix=self._full(prefix), **token)
        )

    def require_conditional_puts(self) -> None:
        """Find out, once per process, whether the server honours If-None-Match and If-Match.

        Raises `StoreRefused` if it does not: two writers would then overwrite each other without a word.
        """
        with self._lock:
            known = self._conditional
        if known is None:
            known = self._probe()
            with self._lock:
                self._conditional = known
        if not known:
            raise StoreRefused(
                f"{self.shown}: this server ignores conditional puts (If-None-Match, If-Match), so it cannot tell two "
                "writers apart: use another server, or let one process alone write here"
            )

    def access(self) -> Access:
        """Return server, region and the credentials of this moment (a role's are renewed before they expire)."""
        where = self._tried(lambda client: client.meta)
        try:
            found = self._session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except (botocore.exceptions.BotoCoreError, OSError) as error:
            raise StoreRefused(f"{self.shown}: no credentials: {error}") from None
        if frozen is None or not frozen.access_key:
            raise StoreRefused(f"{self.shown}: no credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID")
        return Access(where.endpoint_url, where.region_name, frozen.access_key, frozen.secret_key, frozen.token or "")

    # -- inside ------------------------------------------------------------------------------------------------

    def _probe(self) -> bool:
        key = f"{self._probes}/{self._env.random_bytes(12).hex()}"
        try:
            first = self._put_conditionally(key, b"first", {"IfNoneMatch": "*"})
            absent = self._put_conditionally(key, b"second", {"IfNoneMatch": "*"})
            other = self._put_conditionally(key, b"third", {"IfMatch": '"00000000000000000000000000000000"'})
            return first is not None and absent is None and other is None
        finally:
            self.delete(key)

    def _put_conditionally(self, key: str, data: bytes, condition: dict[str, str]) -> str | None:
        tries = 0

        def put(client: Any) -> str | None:
            nonlocal tries
            tries += 1
            try:
                answer = client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data, **condition)
            except botocore.exceptions.ClientError as error:
                if _status(error) == 412 or (_status(error) == 404 and "IfMatch" in condition):
                    return self._if_own(key, data) if tries > 1 else None
                raise
            return str(answer["ETag"])

        return self._tried(put)

    def _if_own(self, key: str, data: bytes) -> str | None:
        there = self.get(key)
        return there.etag if there is not None and there.data == data else None

    def _tried(self, request: Callable[[Any], T]) -> T:
        deadline_s = time.monotonic() + self._patience_s
        pause_s, renewed = _FIRST_PAUSE_S, False
        while True:
            try:
                return request(self._opened())
            except botocore.exceptions.ClientError as error:
                code = str(error.response.get("Error", {}).get("Code", ""))
                if code in _STALE_CREDENTIALS and not renewed:
                    renewed = True
                    self._forget_client()  # somebody may have put fresh ones where these came from
                    continue
                if not _may_pass(error):
                    raise self._refused(error, code) from None
                why = f"{code or _status(error)}"
            except botocore.exceptions.NoCredentialsError:
                raise StoreRefused(f"{self.shown}: no credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID") from None
            except botocore.exceptions.PartialCredentialsError as error:
                raise StoreRefused(f"{self.shown}: {error}") from None
            except (botocore.exceptions.BotoCoreError, botocore.exceptions.HTTPClientError, OSError) as error:
                if isinstance(error, StoreUnreachable | StoreRefused):
                    raise
                why = type(error).__name__
            if time.monotonic() + pause_s > deadline_s:
                raise StoreUnreachable(f"{self.shown}: no good answer in {self._patience_s:.0f} s (last: {why})")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    def _refused(self, error: botocore.exceptions.ClientError, code: str) -> StoreRefused:
        hint = "; the credentials have expired: renew them" if code in _STALE_CREDENTIALS else ""
        return StoreRefused(f"{self.shown}: the server says {code or _status(error)}{hint}")

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                config = botocore.config.Config(
                    retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=ANSWER_TIMEOUT_S,
                    s3={"addressing_style": "path"}, max_pool_connections=32,
                    request_checksum_calculation="when_required", response_checksum_validation="when_required",
                )  # fmt: skip
                self._session = session = botocore.session.Session()
                region = session.get_config_variable("region") or "us-east-1"
                self._client = session.create_client(
                    "s3", config=config, endpoint_url=self._endpoint, region_name=region
                )
            return self._client

    def _forget_client(self) -> None:
        with self._lock:
            self._client = None

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key


def _status(error: botocore.exceptions.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _may_pass(error: botocore.exceptions.ClientError) -> bool:
    """Whether waiting may help: faults of the server, throttling, two conditional puts at one moment (409)."""
    return _status(error) >= 500 or _status(error) in (408, 409, 429) or _status(error) == 0
