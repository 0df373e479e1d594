"""Identities: tenant, trajectory, action, reference, token. Source: design/events.md, *Ids and numbers*."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from .errors import InvalidId
from .limits import INT64_MAX, KEY_SIZE, TENANT_MAX, TRAJECTORY_ID_MAX

# The design's grammar but for . and ..: a tenant is a folder of blobs in roots and landings, never one above.
_TENANT: Final = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{TENANT_MAX}}}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ACTION: Final = re.compile(r"(?:\^(0|[1-9]\d{0,8}):)?(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,8})")

JUDGEMENT_PREFIX: Final = "judge/"
GENERATION: Final = 2**32
"""A fencing token is generation * GENERATION + n, with n from 1."""


def check_tenant(tenant: str) -> str:
    """Return `tenant`, or raise `InvalidId`: 1 to 64 of A-Z a-z 0-9 . _ - but no name of a folder above."""
    if _TENANT.fullmatch(tenant) is None:
        raise InvalidId(
            f"tenant {_shown(tenant)}: must be 1-{TENANT_MAX} characters of A-Z a-z 0-9 . _ -, and not . or .."
        )
    return tenant


def check_trajectory_id(trajectory_id: str, *, judgement: bool = False) -> str:
    """Return `trajectory_id`, or raise `InvalidId`.

    An id is 1-256 bytes of UTF-8 without control characters and not blank. Ids that begin
    with `judge/` belong to judgement trajectories: refused unless `judgement`.
    """
    try:
        size = len(trajectory_id.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"trajectory id {_shown(trajectory_id)}: holds a lone surrogate, not UTF-8") from None
    if not trajectory_id.strip():
        raise InvalidId("trajectory id is empty or blank: give it 1-256 bytes of text")
    if size > TRAJECTORY_ID_MAX:
        raise InvalidId(f"trajectory id {_shown(trajectory_id)}: {size} bytes, at most {TRAJECTORY_ID_MAX}")
    if _CONTROL.search(trajectory_id):
        raise InvalidId(f"trajectory id {_shown(trajectory_id)}: holds a control character")
    if trajectory_id.startswith(JUDGEMENT_PREFIX) is not judgement:
        raise InvalidId(
            f"trajectory id {_shown(trajectory_id)}: ids that begin with '{JUDGEMENT_PREFIX}' are kept for judgements"
        )
    return trajectory_id


@lru_cache(maxsize=4096)
def trajectory_key(tenant: str, trajectory_id: str) -> bytes:
    """Return the 16-byte key of a trajectory: first bytes of sha256(tenant LF trajectory_id). Raises `InvalidId`."""
    try:
        named = f"{tenant}\n{trajectory_id}".encode()
    except UnicodeEncodeError:
        check_trajectory_id(trajectory_id)
        check_tenant(tenant)
        raise
    return hashlib.sha256(named).digest()[:KEY_SIZE]


def action_id(proposed_at: int, index: int) -> str:
    """Return the id of an action: sequence number of the proposing event, and its place in it from 0."""
    return f"{proposed_at}.{index}"


def parse_action_id(text: str) -> tuple[int, int, int]:
    """Return (up, sequence_number, index); `up` is 0 here, 1 for the parent of a branch, and so on.

    Tuples of one trajectory sort in the numeric order that idempotency keys count in.
    """
    match = _ACTION.fullmatch(text)
    if match is None or int(match[2]) > INT64_MAX:
        raise InvalidId(f"action id {_shown(text)}: expected SEQUENCE.INDEX, or ^UP:SEQUENCE.INDEX in a branch")
    return int(match[1] or 0), int(match[2]), int(match[3])


def ancestor_action_id(text: str, up: int = 1) -> str:
    """Return the id by which a branch names an action of the ancestor `up` levels above it."""
    above, sequence, index = parse_action_id(text)
    return f"^{above + up}:{sequence}.{index}"


def token(generation: int, n: int) -> int:
    """Return the fencing token for the n-th tenure (from 1) of a generation (from 0)."""
    return generation * GENERATION + n


def generation_of(fencing_token: int) -> int:
    """Return the generation that a token belongs to."""
    return fencing_token // GENERATION


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:37] + "...")
