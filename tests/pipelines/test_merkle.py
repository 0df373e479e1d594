"""The Merkle tree: the published test vectors of RFC 6962, and every proof of every small tree, honest and forged."""

from __future__ import annotations

from hashlib import sha256

import pytest

from trajlake.pipelines.audit import merkle

LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
"""Roots of the first n leaves, as certificate transparency's reference implementation publishes them."""
HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]


@pytest.mark.parametrize("size", ROOTS)
def test_roots_are_those_of_the_published_vectors(size: int) -> None:
    assert merkle.root(HASHES[:size]).hex() == ROOTS[size]


def test_the_empty_tree_has_the_hash_of_nothing() -> None:
    assert merkle.root([]) == sha256(b"").digest()


def many(size: int) -> list[bytes]:
    return [merkle.leaf_hash(str(n).encode()) for n in range(size)]


def test_every_leaf_of_every_small_tree_is_proved_and_no_other_leaf_or_place_is() -> None:
    for size in range(1, 20):
        leaves = many(size)
        root = merkle.root(leaves)
        for index in range(size):
            path = merkle.inclusion_proof(leaves, index)
            assert merkle.is_included(leaves[index], index, size, path, root)
            assert not merkle.is_included(merkle.leaf_hash(b"x"), index, size, path, root)
            assert not merkle.is_included(leaves[index], index + 1, size, path, root)
            assert not merkle.is_included(leaves[index], index, size, [*path, root], root)
            if path:
                assert not merkle.is_included(leaves[index], index, size, path[:-1], root)


def test_every_smaller_tree_is_proved_a_prefix_and_no_altered_one_is() -> None:
    for newer in range(1, 20):
        leaves = many(newer)
        for older in range(newer + 1):
            old_root, new_root = merkle.root(leaves[:older]), merkle.root(leaves)
            proof = merkle.consistency_proof(leaves, older)
            assert merkle.is_consistent(older, newer, old_root, new_root, proof)
            if older > 0:
                altered = merkle.root([merkle.leaf_hash(b"x"), *leaves[1:older]])
                assert not merkle.is_consistent(older, newer, altered, new_root, proof)
            if 0 < older < newer:
                assert not merkle.is_consistent(older, newer, old_root, merkle.leaf_hash(b"x"), proof)
                assert not merkle.is_consistent(older, newer, old_root, new_root, proof[:-1])


def test_a_node_does_not_pass_for_a_leaf() -> None:
    left, right = many(2)
    assert merkle.leaf_hash(left + right) != merkle.node_hash(left, right)
