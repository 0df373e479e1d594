"""`trajlake anchor`: heads and ledger rows, signed, to be kept where the lake's owner cannot change them."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError
from trajlake.runtime.settings import load


def key(path: Annotated[str, typer.Argument(help="File for the private key; FILE.pub gets the public one.")]) -> None:
    """Make an Ed25519 key pair and print the public key."""
    from ..audit.anchor_read import make_key

    sys.stdout.write(make_key(path) + "\n")


def make(
    key_file: Annotated[str, typer.Option("--key", help="Private key (PEM) that signs; see 'trajlake anchor key'.")],
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose trajectories.")] = None,
    to: Annotated[str, typer.Option("--to", help="A new file, s3://bucket/key, or - for standard output.")] = "-",
    lock_days: Annotated[int | None, typer.Option("--lock-days", min=1, help="Lock the S3 object this long.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Anchor this snapshot, not the newest.")] = None,
) -> None:
    """Anchor what is new since the tenant's last anchor: write it where it is safe, then note it in the lake."""
    from ..audit.anchor import deliver, make_anchor, record_anchor
    from ..audit.anchor_read import private_key
    from ..lakehouse.lake import Lake

    settings = load(lake=lake, tenant=tenant)
    opened = Lake.open(settings.lake)
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    document = make_anchor(opened, at, settings.tenant, private_key(key_file))
    if document is None:
        sys.stderr.write(f"nothing new in tenant {settings.tenant} since its last anchor\n")
        return
    deliver(document, to, lock_days)
    record_anchor(opened, document)
    sys.stderr.write(
        f"{document['anchor_id']}: {len(document['heads'])} heads, {len(document['ledgers'])} ledger rows, to {to}\n"
    )


def verify(
    files: Annotated[list[str], typer.Argument(help="Anchors and proofs, in any order.")],
    public_key: Annotated[
        str | None, typer.Option("--public-key", help="Key (PEM file or hex) that must sign.")
    ] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="Also compare this lake, or a copy of it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Check anchors and proofs offline, and a copy of the lake against them. Exit 1 if anything does not fit."""
    from ..audit.anchor_read import chain_faults, faults, proof_faults, public_key_hex, read_document

    pinned = None if public_key is None else public_key_hex(public_key)
    read = [(path, read_document(path)) for path in files]
    anchors = [(path, document) for path, document in read if "heads" in document]
    wrong = [f"{path}: {line}" for path, document in anchors for line in faults(document, pinned)]
    whole = [document for _, document in anchors if not faults(document)]
    for tenant in sorted({document["tenant"] for document in whole}):
        of_it = sorted((d for d in whole if d["tenant"] == tenant), key=lambda d: (d["log_size"], d["made_at"]))
        wrong += chain_faults(of_it)
    for path, document in read:
        if "heads" not in document:
            wrong += [f"{path}: {line}" for line in proof_faults(document, whole)]
    if lake is not None:
        wrong += _compare(lake, whole)
    attested = "checked against the key given" if pinned else "self-attested: no --public-key was given"
    if as_json:
        sys.stdout.write(
            msgspec.json.encode({"anchors": len(anchors), "wrong": wrong, "note": attested}).decode() + "\n"
        )
    else:
        sys.stdout.write("".join(f"{ascii(line)[1:-1]}\n" for line in wrong))
        sys.stdout.write(f"{len(anchors)} anchors, {len(wrong)} faults; {attested}\n")
    return EXIT_FINDINGS if wrong else EXIT_DONE


def _compare(lake: str, documents: list[dict[str, object]]) -> list[str]:
    from ..audit.anchor import lake_faults
    from ..audit.anchor_read import canonical
    from ..audit.audit_session import AnchorFile
    from ..audit.verify import truncated
    from ..lakehouse.lake import Lake

    opened = Lake.open(lake)
    files = [AnchorFile(str(d["tenant"]), str(d["anchor_id"]), canonical(d).decode()) for d in documents]
    cut = truncated(opened, opened.newest(), files)
    heads = [f"{v.tenant} {v.trajectory_id!r} at {v.sequence_number}: {v.detail}" for v in cut.violations]
    return heads + lake_faults(opened, documents)


def prove(
    trajectory_id: Annotated[str | None, typer.Argument(help="Prove that this trajectory's head is anchored.")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="The lake whose ledger holds the anchors.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose anchors.")] = None,
    older: Annotated[
        str | None, typer.Option("--from", help="Prove that this anchor's log is a prefix of --to's.")
    ] = None,
    newer: Annotated[str | None, typer.Option("--to", help="The later anchor.")] = None,
) -> None:
    """Print an inclusion proof (of a trajectory's newest anchored head) or a consistency proof (--from A --to B)."""
    from ..audit.anchor import anchors_of
    from ..audit.anchor_read import canonical, prove_consistency, prove_head
    from ..lakehouse.lake import Lake

    settings = load(lake=lake, tenant=tenant)
    documents = anchors_of(Lake.open(settings.lake), settings.tenant)
    by_id = {document["anchor_id"]: document for document in documents}
    if trajectory_id is not None:
        naming = [d for d in documents if any(head[0] == trajectory_id for head in d["heads"])]
        if not naming:
            raise UserError(f"{settings.tenant} {ascii(trajectory_id)}: no anchor names it; run 'trajlake anchor make'")
        proof = prove_head(naming[-1], trajectory_id)
    elif older in by_id and newer in by_id:
        proof = prove_consistency(documents, by_id[str(older)], by_id[str(newer)])
    else:
        known = ", ".join(by_id) or "none"
        raise UserError(f"anchor prove: give a trajectory, or --from and --to two of its anchors ({known})")
    sys.stdout.write(canonical(proof).decode() + "\n")
