"""Argument hashes and idempotency keys. Source: design/events.md, *Ids and numbers*.

A tree here is what `values.to_tree` made of the arguments passed to the tool, after coercion and defaults.
No turn, clock or place in the log enters a key, so the same intention has the same key after any crash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from .canonical_json import exact_canonical
from .ids import parse_action_id

KEY_DOMAIN: Final = "trajlake key 1"
"""First element of every key's array, so that no other hash of this system is ever a key."""

Proposal = tuple[str, str, str]
"""(action_id, step, arguments_hash) of one proposed action."""


def arguments_hash(tree: Any) -> str:
    """Return sha256 (hex) of the RFC 8785 text of the arguments. Approvals, audits and keys use it.

    Numbers that the RFC would round, U+0000 and lone surrogates are tagged first, where `to_tree` has not
    already done it. Equal numbers hash the same: 1 and 1.0, 0 and -0.0. Raises `InvalidValue`.
    """
    return hash_of_canonical(exact_canonical(tree))


def hash_of_canonical(arguments: bytes) -> str:
    """Return `arguments_hash` of arguments whose RFC 8785 text (`exact_canonical`) is known."""
    return hashlib.sha256(arguments).hexdigest()


def idempotency_key(tenant: str, trajectory_id: str, step: str, n: int, tree: Any) -> str:
    """Return the key (hex) of the `n`-th occurrence, from 0, of `step` with the arguments `tree`."""
    return idempotency_key_of(tenant, trajectory_id, step, n, exact_canonical(tree))


def idempotency_key_of(tenant: str, trajectory_id: str, step: str, n: int, arguments: bytes) -> str:
    """Return `idempotency_key` for arguments whose RFC 8785 text is known: an array's text holds its members'."""
    return hashlib.sha256(b"%b,%d,%b]" % (_key_front(tenant, trajectory_id, step), n, arguments)).hexdigest()


@lru_cache(maxsize=4096)
def _key_front(tenant: str, trajectory_id: str, step: str) -> bytes:
    """The text of a key's array up to `step`: the same for every call of a step."""
    return exact_canonical([KEY_DOMAIN, tenant, trajectory_id, step])[:-1]


def same_as_key(tenant: str, trajectory_id: str, tool: str, identity: Any) -> str:
    """Return the key (hex) of a call that declares a business identity: neither `n` nor other arguments enter."""
    return _digest([KEY_DOMAIN, tenant, trajectory_id, "same_as", tool, identity])


def occurrence(actions: Iterable[Proposal], action_id: str, step: str, hashed: str) -> int:
    """Return `n` of an action: how many of `actions` were proposed before it for the same step and hash.

    `actions` are all proposals by kept replies and by the harness in canonical, not given-up history, in
    any order, whether or not they came to an intent. Before means a numerically lower action id; actions of
    an ancestor (`^1:57.0`) come before those of a branch. The action itself may be among them.
    """
    own = _order(action_id)
    return sum(
        1 for other, step_of, hash_of in actions if hash_of == hashed and step_of == step and _order(other) < own
    )


def _order(action_id: str) -> tuple[int, int, int]:
    up, sequence_number, index = parse_action_id(action_id)
    return -up, sequence_number, index


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(exact_canonical(parts)).hexdigest()
