"""`trajlake evidence`: what an incident review needs of one trajectory, as JSON and as one page."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from ..lakehouse.lake import Lake


def evidence(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose trajectory.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Read this snapshot, not the newest.")] = None,
    out: Annotated[str | None, typer.Option("--out", help="New folder for evidence.json and evidence.html.")] = None,
    anchor: Annotated[
        list[str] | None, typer.Option("--anchor", help="An anchor kept outside; may be repeated.")
    ] = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", help="The key those anchors must be signed by.")
    ] = None,
    actor: Annotated[str, typer.Option("--actor", help="Opaque key of who takes it out; goes into the record.")] = "",
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not record this access in the lake.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
) -> int:
    """Gather the evidence on one trajectory. Exit 1 if its hash chain or an anchor does not hold."""
    from ..audit.anchor_read import outside_anchors
    from ..audit.audit_bundle import check_target
    from ..audit.evidence import gather
    from ..lakehouse.lake import Lake

    if out is not None:
        check_target(out)  # before the access is recorded
    settings = load(lake=lake, tenant=tenant)
    opened = Lake.open(settings.lake)
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    anchors = outside_anchors(anchor or (), public_key)
    found = gather(opened, at, settings.tenant, trajectory_id, anchors)
    text = msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
    if not no_ledger:
        _record(opened, found, text, actor or f"uid-{os.getuid()}", out)
    if out is not None:
        _write(out, text, found)
    if as_json:
        sys.stdout.buffer.write(text)
    else:
        _print(found, out)
    proofs = found["proofs"]
    holds = not proofs["chain"] and all(one["is_present"] for one in proofs["anchors"])
    return EXIT_DONE if holds else EXIT_FINDINGS


def _record(lake: Lake, found: dict[str, Any], text: bytes, actor: str, out: str | None) -> None:
    from ..lakehouse.ledger import append_ledger

    digest = sha256(text).hexdigest()
    about = {"tenant": found["tenant"], "trajectory_id": found["trajectory_id"]}
    row = {
        "export_id": f"evidence-{digest[:16]}",
        "kind": "evidence",
        "manifest_sha256": digest,
        "path": out,
        "rows": len(found["events"]),
        "erasure_epoch": 0,
        "snapshot": found["snapshot"],
        "actor": actor,
        "detail": msgspec.json.encode(about).decode(),
    }
    append_ledger(lake, "exports", [row])


def _write(folder: str, text: bytes, found: dict[str, Any]) -> None:
    from ..audit.evidence_page import evidence_page

    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, data in (("evidence.json", text), ("evidence.html", evidence_page(found).encode())):
        descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def _print(found: dict[str, Any], out: str | None) -> None:
    proofs = found["proofs"]
    chain = "holds" if not proofs["chain"] else f"{len(proofs['chain'])} faults"
    lines = [
        f"{len(found['events'])} events, {len(found['actions'])} actions, {len(found['contexts'])} replies",
        f"chain {chain}",
    ]
    lines += [f"{a['action_id']} {a.get('tool')}: {a['doubt']}" for a in found["actions"] if a["doubt"]]
    lines += [f"{fault['kind']} at {fault['sequence_number']}: {fault['detail']}" for fault in proofs["chain"]]
    lines.append(
        "self-attested: no anchor kept outside was compared" if proofs["self_attested"] else "anchored outside"
    )
    if out is not None:
        lines.append(f"written to {out}")
    sys.stdout.write("".join(f"{ascii(line)[1:-1]}\n" for line in lines))
