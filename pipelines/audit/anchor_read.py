"""Anchors as documents: their bytes, leaves, signature, and the checks that need nothing but the document and a key.

An anchor is one JSON object (`ANCHOR.md` lists its fields). Signed is `trajlake anchor 1` LF the canonical JSON of the
object without `signature`. It holds strings, whole numbers, lists and null only, for which canonical JSON (RFC 8785) is
what `json.dumps` writes with sorted keys and no blanks; so this module, `merkle.py` and `cryptography` are all that a
verifier needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from trajlake.runtime.cli_errors import UserError

from . import merkle

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from .audit_session import AnchorFile

FORMAT: Final = "trajlake anchor 1"
FIELDS: Final = (
    "format", "anchor_id", "tenant", "day", "made_at", "snapshot", "previous", "heads", "ledgers", "tree_size", "root",
    "log_size", "log_root", "public_key", "signature",
)  # fmt: skip
Document = dict[str, Any]


def canonical(tree: Any) -> bytes:
    """Return the canonical JSON text of a tree of strings, whole numbers, lists, objects and null."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def signed_bytes(document: Document) -> bytes:
    """Return what the signature covers."""
    return FORMAT.encode() + b"\n" + canonical({name: document[name] for name in document if name != "signature"})


def identity(document: Document) -> str:
    """Return the hash by which the next anchor names this one, and which is its leaf in the log of anchors."""
    return sha256(canonical(document)).hexdigest()


def leaves(document: Document) -> list[list[Any]]:
    """Return the leaves of the tree: heads, then ledger rows, in the document's order."""
    heads = [["head", document["tenant"], *head] for head in document["heads"]]
    return [*heads, *(["ledger", *row] for row in document["ledgers"])]


def leaf_hashes(document: Document) -> list[bytes]:
    return [merkle.leaf_hash(canonical(leaf)) for leaf in leaves(document)]


def log_hashes(earlier: Iterable[Document]) -> list[bytes]:
    """Return the leaf hashes of the log of anchors, oldest first."""
    return [merkle.leaf_hash(identity(document).encode()) for document in earlier]


def faults(document: Document, pinned: str | None = None) -> list[str]:
    """Return what is wrong with one anchor by itself, as lines; `pinned` is the public key (hex) it must carry."""
    missing = [name for name in FIELDS if name not in document]
    if missing or document.get("format") != FORMAT:
        return [f"no {FORMAT}: lacks {', '.join(missing) or 'the right format'}"]
    found = []
    if pinned is not None and document["public_key"] != pinned:
        found.append("signed by another key than the one given")
    if not _is_signed(document):
        found.append("the signature does not fit")
    hashes = leaf_hashes(document)
    if document["tree_size"] != len(hashes) or document["root"] != merkle.root(hashes).hex():
        found.append("the root does not fit the heads and ledger rows")
    return found


def _is_signed(document: Document) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(document["public_key"]))
        key.verify(bytes.fromhex(document["signature"]), signed_bytes(document))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def chain_faults(documents: Sequence[Document]) -> list[str]:
    """Return what is wrong between anchors of one tenant (oldest first): links, sizes, and the log over all before.

    Where anchors are left out between two that are given, only a consistency proof can speak; see `proof_faults`.
    """
    found = []
    for place, document in enumerate(documents):
        before = documents[place - 1] if place else None
        previous, name = document["previous"], document["anchor_id"]
        if before is None or document["log_size"] != before["log_size"] + 1:
            continue
        if previous is None or previous["identity"] != identity(before):
            found.append(f"{name}: names another anchor before it than {before['anchor_id']}")
    whole = [document["log_size"] for document in documents] == list(range(len(documents)))
    if whole:
        for place, document in enumerate(documents):
            if document["log_root"] != merkle.root(log_hashes(documents[:place])).hex():
                found.append(f"{document['anchor_id']}: its log root does not fit the anchors before it")
    return found


def prove_head(document: Document, trajectory_id: str) -> Document:
    """Return the inclusion proof of a trajectory's head in an anchor; `UserError` if the anchor does not name it."""
    all_leaves = leaves(document)
    for index, leaf in enumerate(all_leaves):
        if leaf[0] == "head" and leaf[2] == trajectory_id:
            path = merkle.inclusion_proof(leaf_hashes(document), index)
            return {
                "format": "trajlake inclusion proof 1", "anchor_id": document["anchor_id"], "leaf": leaf,
                "index": index, "tree_size": len(all_leaves), "path": [step.hex() for step in path],
                "root": document["root"],
            }  # fmt: skip
    raise UserError(f"anchor {document['anchor_id']}: names no head of {ascii(trajectory_id)}; try an earlier anchor")


def prove_consistency(documents: Sequence[Document], older: Document, newer: Document) -> Document:
    """Return the proof that the log of anchors behind `older` is a prefix of the one behind `newer`."""
    sizes = older["log_size"], newer["log_size"]
    path = merkle.consistency_proof(log_hashes(documents[: sizes[1]]), sizes[0])
    return {
        "format": "trajlake consistency proof 1", "older": older["anchor_id"], "newer": newer["anchor_id"],
        "older_size": sizes[0], "newer_size": sizes[1], "path": [step.hex() for step in path],
    }  # fmt: skip


def proof_faults(proof: Document, documents: Sequence[Document]) -> list[str]:
    """Check a proof against the anchors it names; return what is wrong."""
    by_id = {document["anchor_id"]: document for document in documents}
    try:
        path = [bytes.fromhex(step) for step in proof["path"]]
        if proof["format"] == "trajlake inclusion proof 1":
            anchor = by_id[proof["anchor_id"]]
            leaf = merkle.leaf_hash(canonical(proof["leaf"]))
            fits = merkle.is_included(leaf, proof["index"], anchor["tree_size"], path, bytes.fromhex(anchor["root"]))
            return [] if fits else [f"the proof does not lead from its leaf to the root of {anchor['anchor_id']}"]
        if proof["format"] == "trajlake consistency proof 1":
            older, newer = by_id[proof["older"]], by_id[proof["newer"]]
            roots = [bytes.fromhex(one["log_root"]) for one in (older, newer)]
            fits = merkle.is_consistent(older["log_size"], newer["log_size"], roots[0], roots[1], path)
            return (
                [] if fits else [f"the anchors behind {proof['older']} are no prefix of those behind {proof['newer']}"]
            )
    except KeyError as error:
        return [f"the proof names {error.args[0]!r}, which is not among the anchors given (or a field is missing)"]
    except (TypeError, ValueError):
        return ["the proof is no list of hashes"]
    return [f"{proof.get('format')!r} is no proof this version knows"]


def read_document(path: str) -> Document:
    """Return the JSON object in a file; `UserError` if it holds none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except (ValueError, RecursionError):
        raise UserError(f"{path}: no JSON; give a file that 'trajlake anchor make' wrote") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: no anchor and no proof; give a file that 'trajlake anchor make' wrote")
    return found


def outside_anchors(paths: Sequence[str], public_key: str | None) -> tuple[AnchorFile, ...]:
    """Return anchors kept outside a lake, each checked by itself and against the pinned key.

    Raises `UserError` without a key: an anchor that anybody may have signed vouches for nothing.
    """
    from .audit_session import AnchorFile

    if not paths:
        return ()
    if public_key is None:
        raise UserError("--anchor: also give --public-key, else anybody could have made the anchor")
    pinned = public_key_hex(public_key)
    found = []
    for path in paths:
        document = read_document(path)
        wrong = faults(document, pinned)
        if wrong:
            raise UserError(f"{path}: {wrong[0]}; it vouches for nothing", exit_code=1)
        found.append(AnchorFile(document["tenant"], document["anchor_id"], canonical(document).decode()))
    return tuple(found)


# -- keys ------------------------------------------------------------------------------------------------------------


def make_key(path: str) -> str:
    """Write a new private key (PEM, mode 0600) and `<path>.pub`; return the public key as hex."""
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    for name, data, mode in ((path, pem, 0o600), (f"{path}.pub", public, 0o644)):
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise UserError(f"{name}: exists already; a key is never written over, name another file") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return hex_of(key.public_key())


def private_key(path: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    with open(path, "rb") as file:
        data = file.read()
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise UserError(
            f"{path}: no unencrypted private key in PEM; make one with 'trajlake anchor key FILE'"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{path}: not an Ed25519 key; make one with 'trajlake anchor key FILE'")
    return key


def public_key_hex(text: str) -> str:
    """Return a public key as hex: from 64 hex digits, or from a PEM file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if len(text) == 64 and all(digit in "0123456789abcdef" for digit in text):
        return text
    with open(text, "rb") as file:
        data = file.read()
    try:
        key = load_pem_public_key(data)
    except (ValueError, TypeError):
        raise UserError(f"{text}: no public key in PEM, and no 64 hex digits") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{text}: not an Ed25519 key")
    return hex_of(key)


def hex_of(key: Ed25519PublicKey) -> str:
    return key.public_bytes_raw().hex()
