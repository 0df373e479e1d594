"""`trajlake verify`: is every event of a lake or a root what was written, in order, without a gap?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from ..audit.verify import RuleResult


def verify(
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    journal: Annotated[str | None, typer.Option("--journal", help="Check this root instead of a lake.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Check this snapshot, not the newest.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Check this tenant's rows only.")] = None,
    blobs: Annotated[bool, typer.Option("--blobs", help="Also read and hash every blob.")] = False,
    anchor: Annotated[
        list[str] | None, typer.Option("--anchor", help="An anchor kept outside; may be repeated.")
    ] = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", help="The key those anchors must be signed by.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> int:
    """Check the hash chain: chain, payload, payload_missing, gap, truncated, and blobs. Exit 1 with findings."""
    from ..audit.anchor_read import outside_anchors

    anchors = outside_anchors(anchor or (), public_key)
    if journal is not None:
        if lake is not None or snapshot is not None:
            raise UserError("verify: --journal checks a root; give it without --lake and --snapshot")
        from trajlake.runtime.root import Root

        from ..audit.verify_root import verify_root

        root = Root.open(journal, create=False)
        results = verify_root(root, tenant=tenant, anchors=anchors, blobs=blobs)
    else:
        from ..audit.verify import verify_lake

        results = verify_lake(load(lake=lake).lake, snapshot=snapshot, tenant=tenant, anchors=anchors, blobs=blobs)
    if as_json:
        sys.stdout.write(msgspec.json.encode([result._asdict() for result in results], enc_hook=list).decode() + "\n")
    else:
        _print(results)
    return EXIT_FINDINGS if any(result.found for result in results) else EXIT_DONE


def _print(results: list[RuleResult]) -> None:
    for result in results:
        tail = f"  {result.note}" if result.note else ""
        shown = f"{result.found} findings" if result.found else result.verdict
        sys.stdout.write(f"{result.rule:<16} {shown}{tail}\n")
        for one in result.violations:
            where = f"{ascii(one.tenant)[1:-1]} {ascii(one.trajectory_id)} at {one.sequence_number}"
            sys.stdout.write(f"    {where}: {ascii(one.detail)[1:-1]}\n")
