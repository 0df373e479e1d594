"""The Merkle tree of RFC 6962: root, inclusion proof, consistency proof, and their verification.

A leaf is hashed with a leading 0x00, a node with 0x01, so that no leaf passes for a node. The largest power of two
below the size goes left. Standard library only: the offline verifier carries this module along.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes, bottom up; the hash of nothing for none."""
    if not leaves:
        return EMPTY_ROOT
    level = list(leaves)
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def _split(size: int) -> int:
    """The largest power of two below `size` (2 or more)."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path from leaf `index` to the root, nearest first (RFC 6962, 2.1.1)."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index}: the tree has {len(leaves)}")
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion_proof(leaves[:k], index), root(leaves[k:])]
    return [*inclusion_proof(leaves[k:], index - k), root(leaves[:k])]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], expected_root: bytes) -> bool:
    """Whether `path` leads from a leaf hash at `index` of a tree of `size` leaves to the root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for step in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(step, found)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == expected_root


def consistency_proof(leaves: Sequence[bytes], older: int) -> list[bytes]:
    """Return the proof that the tree over the first `older` leaves is a prefix of this one (RFC 6962, 2.1.2)."""
    if not 0 <= older <= len(leaves):
        raise IndexError(f"{older} leaves: the tree has {len(leaves)}")
    if older in (0, len(leaves)):
        return []
    return _subproof(older, leaves, True)


def _subproof(older: int, leaves: Sequence[bytes], is_whole: bool) -> list[bytes]:
    if older == len(leaves):
        return [] if is_whole else [root(leaves)]
    k = _split(len(leaves))
    if older <= k:
        return [*_subproof(older, leaves[:k], is_whole), root(leaves[k:])]
    return [*_subproof(older - k, leaves[k:], False), root(leaves[:k])]


def is_consistent(older: int, newer: int, older_root: bytes, newer_root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether `proof` shows that the older tree is a prefix of the newer one (RFC 9162, 2.1.4.2)."""
    if older == newer:
        return older_root == newer_root and not proof
    if older == 0:
        return older_root == EMPTY_ROOT and not proof
    if not 0 < older < newer or not proof:
        return False
    steps = list(proof)
    if older & (older - 1) == 0:
        steps.insert(0, older_root)
    place, last = older - 1, newer - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    first = second = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            first, second = node_hash(step, first), node_hash(step, second)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            second = node_hash(second, step)
        place, last = place >> 1, last >> 1
    return last == 0 and first == older_root and second == newer_root
