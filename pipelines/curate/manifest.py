"""The manifest: everything a set was cut from and by, so that it can be rebuilt to the byte, explained and re-cut.

It holds no path of a machine and no time: the same snapshot, policy and code give the same manifest.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.canonical_json import canonical

from .extract import EXTRACT_VERSION
from .funnel import Step
from .secret_rules import SCANNER_VERSION
from .writers.family import FileFacts

NAME: Final = "manifest.json"
LIBRARIES: Final = ("trajlake", "polars", "pyarrow", "msgspec", "rensa", "jinja2")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`row_root` is the hash over all row hashes in order; `files` are the set's files with theirs."""

    format: int = 1
    kind: str
    name: str
    pin: str
    snapshot: int
    erasure_epoch: int
    table_versions: dict[str, int]
    policy_sha256: str
    policy: dict[str, Any]
    evaluation_sha256: dict[str, str]
    template_sha256: str = ""
    families: list[str]
    seed: int
    extract_version: int = EXTRACT_VERSION
    scanner_version: str = SCANNER_VERSION
    libraries: dict[str, str] = {}
    funnel: list[Step]
    refused: dict[str, dict[str, int]] = {}
    rows: int
    splits: dict[str, int]
    split_groups_sha256: str
    trained_share: float
    row_root: str
    files: list[FileFacts]


def libraries() -> dict[str, str]:
    """Return the versions of what shapes a set's bytes; absent ones are left out."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the manifest's text: keys in declared order, one value a line."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def read_manifest(path: str) -> Manifest:
    """Return the manifest at `path` (or in that folder); raise `UserError` for one that is none."""
    import os

    path = os.path.join(path, NAME) if os.path.isdir(path) else path
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Manifest)
    except FileNotFoundError:
        raise UserError(f"{path}: no manifest there") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: no manifest: {error}") from None


def digest_of(value: Any) -> str:
    """Return the hash (hex) of a plain tree."""
    return hashlib.sha256(canonical(value)).hexdigest()
