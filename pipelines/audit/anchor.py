"""Makes anchors: a signed list of the heads and ledger rows that no anchor before it names, linked to that one.

Kept where the lake's owner cannot change it (another account's locked bucket, a transparency log), an anchor shows
later that nothing it names was cut, rewritten or dropped. Each covers what is new or has moved since the last, so that
late landings are never missed; the chain of all of them covers the tenant.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.tables import LEDGERS

from . import merkle
from .anchor_read import FORMAT, Document, canonical, hex_of, identity, leaf_hashes, log_hashes, signed_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ..lakehouse.lake import Lake
    from ..lakehouse.snapshot import Snapshot

NO_TENANT_COLUMN: Final = frozenset({"exports", "runs"})
"""Ledgers whose rows belong to no tenant: every tenant's anchors name them."""
STANDARD_OUTPUT: Final = "-"


def make_anchor(lake: Lake, at: Snapshot, tenant: str, key: Ed25519PrivateKey) -> Document | None:
    """Return the signed anchor of what is new in `tenant` at `at`, or None if nothing is. Writes nothing."""
    earlier = anchors_of(lake, tenant)
    heads = list(_new_heads(lake, at, tenant, earlier))
    rows = list(_new_rows(lake, tenant, earlier))
    if not heads and not rows:
        return None
    made_at = dt.datetime.now(dt.UTC)
    last = earlier[-1] if earlier else None
    document: Document = {
        "format": FORMAT,
        "tenant": tenant,
        "day": made_at.date().isoformat(),
        "made_at": made_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "snapshot": at.number,
        "previous": None if last is None else {"anchor_id": last["anchor_id"], "identity": identity(last)},
        "heads": heads,
        "ledgers": rows,
        "log_size": len(earlier),
        "log_root": merkle.root(log_hashes(earlier)).hex(),
        "public_key": hex_of(key.public_key()),
    }
    hashes = leaf_hashes(document)
    document["tree_size"], document["root"] = len(hashes), merkle.root(hashes).hex()
    document["anchor_id"] = f"{tenant}-{document['day']}-{len(earlier)}-{document['root'][:8]}"
    document["signature"] = key.sign(signed_bytes(document)).hex()
    return document


def anchors_of(lake: Lake, tenant: str) -> list[Document]:
    """Return the anchors that the lake's own ledger holds of a tenant, oldest first."""
    found = []
    for row in _ledger_rows(lake, "anchors"):
        if row["tenant"] == tenant and row["detail"]:
            document = msgspec.json.decode(row["detail"])
            if isinstance(document, dict) and "log_size" in document:
                found.append(document)
    return sorted(found, key=lambda document: (document["log_size"], document["made_at"]))


def _new_heads(lake: Lake, at: Snapshot, tenant: str, earlier: list[Document]) -> Iterator[list[Any]]:
    from ..lakehouse.parquet_files import read_parquet

    known = {(head[0], head[1], head[2]) for document in earlier for head in document["heads"]}
    paths = [file for file in lake.files(at, "trajectories") if file.partition.get("tenant", tenant) == tenant]
    columns = ["trajectory_id", "last_sequence", "head_hash", "status"]
    heads = []
    for file in paths:
        frame = read_parquet(file.path, [*columns, *_own(file.partition)])
        day = file.partition.get("started_on")
        for row in frame.iter_rows(named=True):
            started = day if day is not None else row["started_on"].isoformat()
            if row["status"] != "expired":
                heads.append([row["trajectory_id"], row["last_sequence"], row["head_hash"], started])
    return (head for head in sorted(heads) if tuple(head[:3]) not in known)


def _own(partition: Mapping[str, str]) -> list[str]:
    return [] if "started_on" in partition else ["started_on"]


def _new_rows(lake: Lake, tenant: str, earlier: list[Document]) -> Iterator[list[str]]:
    """Yield [ledger, row_id, hash of the row] for rows that concern the tenant and are in no anchor yet.

    Rows of `anchors` are left out: the chain and the log of anchors bind those.
    """
    known = {(row[0], row[1]) for document in earlier for row in document["ledgers"]}
    for table in LEDGERS:
        if table.name == "anchors":
            continue
        found = {
            row["row_id"]: row_hash(row)
            for row in _ledger_rows(lake, table.name)
            if table.name in NO_TENANT_COLUMN or row["tenant"] in (tenant, "*")
        }
        yield from ([table.name, name, found[name]] for name in sorted(found) if (table.name, name) not in known)


def row_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of a ledger row: sha256 of its canonical JSON, null columns left out, times in ISO 8601."""
    values = {
        name: value.isoformat() if isinstance(value, dt.date) else repr(value) if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }
    return sha256(canonical(values)).hexdigest()


def _ledger_rows(lake: Lake, name: str) -> Iterator[dict[str, Any]]:
    from ..lakehouse.parquet_files import read_parquet

    for path in lake.ledger_files(name):
        yield from read_parquet(path).iter_rows(named=True)


def record_anchor(lake: Lake, document: Document) -> None:
    """Append the anchor to the ledger `anchors`, whole: its own copy of what was sent outside."""
    from ..lakehouse.ledger import append_ledger

    previous = document["previous"]
    append_ledger(
        lake,
        "anchors",
        [
            {
                "anchor_id": document["anchor_id"],
                "tenant": document["tenant"],
                "day": dt.date.fromisoformat(document["day"]),
                "root": document["root"],
                "previous_root": previous["identity"] if previous else None,
                "trajectories": len(document["heads"]),
                "signature": document["signature"],
                "snapshot": document["snapshot"],
                "detail": canonical(document).decode(),
            }
        ],
    )


def lake_faults(lake: Lake, documents: list[Document]) -> list[str]:
    """Compare a lake (or a copy of one) with anchors: every ledger row they name must be there, unchanged.

    Heads are compared by control Q16b and by `trajlake verify`.
    """
    wanted = {(row[0], row[1]): row[2] for document in documents for row in document["ledgers"]}
    found = {
        (table.name, row["row_id"]): row_hash(row)
        for table in LEDGERS
        if table.name != "anchors"
        for row in _ledger_rows(lake, table.name)
    }
    return [
        f"ledger {name}: row {row_id} {'was changed' if (name, row_id) in found else 'is gone'} since its anchor"
        for (name, row_id), expected in sorted(wanted.items())
        if found.get((name, row_id)) != expected
    ]


def deliver(document: Document, to: str, lock_days: int | None = None) -> None:
    """Write an anchor where the user says: "-" (standard output), a new file, or s3://bucket/key.

    An S3 object is put with a retention lock of `lock_days` (mode COMPLIANCE) when given; the bucket must allow locks.
    """
    if lock_days is not None and not to.startswith("s3://"):
        raise UserError(f"--lock-days: {to} cannot be locked; give --to s3://bucket/key")
    data = canonical(document) + b"\n"
    if to == STANDARD_OUTPUT:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    elif to.startswith("s3://"):
        from .anchor_bucket import put_once

        put_once(data, to, lock_days)
    else:
        try:
            descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise UserError(f"{to}: exists already; an anchor is never written over, name another file") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
