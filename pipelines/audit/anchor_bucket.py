"""An anchor into a bucket: put once, never over another, and locked where asked; then looked at, so that it is known.

A server may take the lock's headers and not honour them; so the lock is read back. Credentials and region come from
botocore's chain, the server from AWS_ENDPOINT_URL or `?endpoint_url=http://HOST:PORT` in the URL.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from trajlake.runtime.cli_errors import UserError

EXIT_UNREACHABLE: Final = 3
THERE: Final = frozenset({"PreconditionFailed", "412"})
CONFLICT: Final = "ConditionalRequestConflict"
"""Another put of the same object is under way; S3 asks to try again."""
CONFLICT_TRIES: Final = 3
CONFLICT_PAUSE_S: Final = 0.2
DENIED: Final = frozenset({"AccessDenied", "403", "MethodNotAllowed", "NotImplemented"})


def put_once(data: bytes, url: str, lock_days: int | None) -> None:
    """Put `data` at `s3://BUCKET/KEY` if nothing stands there. Raises `UserError`, also where it is not locked then.

    With `lock_days` nobody, the bucket's owner included, can remove this version before so many days (COMPLIANCE).
    """
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError:
        raise UserError(
            "--to s3: this needs botocore: pip install 'trajlake[s3]'", exit_code=EXIT_UNREACHABLE
        ) from None
    parts = urlsplit(url)
    bucket, key = parts.netloc, parts.path.lstrip("/")
    shown = f"s3://{bucket.rpartition('@')[2]}/{key}"
    if not bucket or not key or "@" in bucket:
        raise UserError(f"{shown}: an object is s3://BUCKET/KEY, without credentials")
    where = dict(parse_qsl(parts.query)).get("endpoint_url")
    until = None if lock_days is None else dt.datetime.now(dt.UTC) + dt.timedelta(days=lock_days)
    lock = {} if until is None else {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": until}
    try:
        client: Any = botocore.session.Session().create_client(
            "s3", endpoint_url=where, config=botocore.config.Config(retries={"total_max_attempts": 3})
        )
        version = _put(client, bucket, key, data, lock)
        if until is not None:
            _check_lock(client, bucket, key, version, until)
    except botocore.exceptions.ClientError as error:
        raise _refused(error, shown, locked=until is not None) from None
    except (botocore.exceptions.BotoCoreError, OSError) as error:
        raise UserError(f"{shown}: {_line(error)}; run it again", exit_code=EXIT_UNREACHABLE) from None


def _put(client: Any, bucket: str, key: str, data: bytes, lock: dict[str, Any]) -> str | None:
    """Put the object unless one stands there; return its version. Where these very bytes stand there, it is done.

    An answer may be lost and botocore ask again: the object that is then in the way is our own.
    """
    import botocore.exceptions

    for left in reversed(range(CONFLICT_TRIES)):
        try:
            answer = client.put_object(
                Bucket=bucket, Key=key, Body=data, ContentType="application/json", IfNoneMatch="*", **lock
            )
            break
        except botocore.exceptions.ClientError as error:
            if _code(error) in THERE:
                found = _own(client, bucket, key, data)
                if found is None:
                    raise
                answer = found
                break
            if _code(error) != CONFLICT or not left:
                raise
        time.sleep(CONFLICT_PAUSE_S)
    version = answer.get("VersionId")
    return None if version is None else str(version)


def _own(client: Any, bucket: str, key: str, data: bytes) -> dict[str, Any] | None:
    import botocore.exceptions

    try:
        found: dict[str, Any] = client.get_object(Bucket=bucket, Key=key)
    except botocore.exceptions.ClientError:
        return None
    return found if found["Body"].read() == data else None


def _check_lock(client: Any, bucket: str, key: str, version: str | None, until: dt.datetime) -> None:
    """Read the lock back. Raises `UserError` where the version is not held as long as was asked for."""
    import botocore.exceptions

    of = {"VersionId": version} if version else {}
    try:
        found = client.head_object(Bucket=bucket, Key=key, **of)
    except botocore.exceptions.ClientError as error:
        if _code(error) in DENIED:
            sys.stderr.write(f"s3://{bucket}/{key}: these credentials may not read, so its lock could not be checked\n")
            return
        raise
    held = found.get("ObjectLockRetainUntilDate")
    mode = found.get("ObjectLockMode")
    if mode != "COMPLIANCE" or held is None or held < until - dt.timedelta(minutes=1):
        raise UserError(
            f"s3://{bucket}/{key}: written, but not locked: the server ignored the lock (mode {mode or 'none'}); use a "
            "bucket that was made with object lock",
            exit_code=EXIT_UNREACHABLE,
        )


def _refused(error: Any, shown: str, *, locked: bool) -> UserError:
    code = _code(error)
    if code in THERE or code == CONFLICT:
        return UserError(f"{shown}: exists already; an anchor is never written over, name another object")
    why = f"{shown}: the server refused ({code}: {error.response.get('Error', {}).get('Message', '')})"
    advice = "; with --lock-days the bucket must have been made with object lock" if locked else ""
    return UserError(_line(why + advice), exit_code=EXIT_UNREACHABLE)


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _line(error: object) -> str:
    return " ".join(str(error).split())
