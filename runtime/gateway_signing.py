"""Signed requests between a worker and a gateway: HMAC-SHA256 with one secret per tenant.

The signature covers, joined by LF: `trajlake gateway 1`, method, path with query, tenant, trajectory id, token, key,
arguments hash, time of signing (s since the epoch), sha256 of the body (hex). A repeat of a request does no harm, the
key sees to that; the time only keeps a captured one from being useful for ever.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import check_tenant, check_trajectory_id
from trajlake.schemas.limits import INT64_MAX

CLOCK_SKEW_MAX_S: Final = 300
SECRET_SIZE_MIN_BYTES: Final = 16

PREFIX: Final = "trajlake-"
ANSWER: Final = "trajlake-answer"
"""Header of a gateway's own answers: kept, stale, conflict, unknown, not_kept, refused, unsigned, too_large."""
NOT_EXECUTED: Final = "trajlake-not-executed"
"""Header with which a service says that nothing happened: the key may run again."""
ANNOUNCE_PATH: Final = "/_trajlake/announce"
VERDICT_PATH: Final = "/_trajlake/not-executed"


class Unsigned(Exception):
    """A request without a valid signature; the text says what is wrong and gives nothing away."""


class SignedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the headers say: a `gateway.Caller`. `key` and `arguments_hash` are "" for an announcement."""

    tenant: str
    trajectory_id: str
    token: int
    key: str = ""
    arguments_hash: str = ""


def signed_headers(
    secret: bytes, call: SignedCall, *, method: str, path: str, body: bytes, now_s: int
) -> dict[str, str]:
    """Return the headers to send with a request."""
    headers = {
        f"{PREFIX}tenant": call.tenant,
        f"{PREFIX}trajectory": quote(call.trajectory_id, safe=""),
        f"{PREFIX}token": str(call.token),
        "idempotency-key": call.key,
        f"{PREFIX}arguments": call.arguments_hash,
        f"{PREFIX}time": str(now_s),
    }
    return {**headers, f"{PREFIX}signature": _signature(secret, call, method, path, str(now_s), body)}


def check_signature(
    secrets: Mapping[str, bytes], headers: Mapping[str, str], *, method: str, path: str, body: bytes, now_s: float
) -> SignedCall:
    """Return who calls; raise `Unsigned`. `headers` have lower-case names."""
    try:
        call = SignedCall(
            tenant=check_tenant(headers[f"{PREFIX}tenant"]),
            trajectory_id=check_trajectory_id(unquote(headers[f"{PREFIX}trajectory"], errors="strict")),
            token=int(headers[f"{PREFIX}token"]),
            key=headers.get("idempotency-key", ""),
            arguments_hash=headers.get(f"{PREFIX}arguments", ""),
        )
        signed_at = headers[f"{PREFIX}time"]
        given = headers[f"{PREFIX}signature"].encode()
        age_s = abs(now_s - int(signed_at))
    except (KeyError, ValueError, InvalidId):
        raise Unsigned("the request is not signed") from None
    secret = secrets.get(call.tenant)
    expected = _signature(secret or bytes(32), call, method, path, signed_at, body).encode()
    if not hmac.compare_digest(expected, given) or secret is None or len(secret) < SECRET_SIZE_MIN_BYTES:
        raise Unsigned("the signature does not fit")
    if age_s > CLOCK_SKEW_MAX_S:
        raise Unsigned(f"signed {age_s:.0f} s away from this clock, at most {CLOCK_SKEW_MAX_S}")
    if not 0 < call.token <= INT64_MAX:
        raise Unsigned("the token is none")
    return call


def _signature(secret: bytes, call: SignedCall, method: str, path: str, signed_at: str, body: bytes) -> str:
    parts = (
        "trajlake gateway 1", method.upper(), path, call.tenant, call.trajectory_id, str(call.token), call.key,
        call.arguments_hash, signed_at, hashlib.sha256(body).hexdigest(),
    )  # fmt: skip
    return hmac.new(secret, "\n".join(parts).encode(errors="surrogatepass"), hashlib.sha256).hexdigest()
