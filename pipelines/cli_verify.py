"""`trajlake verify`: is every row of a lake what was written, in order, without a gap?"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS
from trajlake.runtime.settings import load


def verify(
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Check this snapshot, not the newest.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Check this tenant's rows only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> int:
    """Check the hash chain of a lake: chain, payload, payload_missing, gap, truncated. Exit 1 with findings."""
    from .verify import verify_lake

    results = verify_lake(load(lake=lake).lake, snapshot=snapshot, tenant=tenant)
    if as_json:
        sys.stdout.write(msgspec.json.encode([result._asdict() for result in results], enc_hook=list).decode() + "\n")
    else:
        for result in results:
            tail = f"  {result.note}" if result.note else ""
            shown = f"{result.found} findings" if result.found else result.verdict
            sys.stdout.write(f"{result.rule:<16} {shown}{tail}\n")
            for one in result.violations:
                where = f"{one.tenant} {ascii(one.trajectory_id)} at {one.sequence_number}"
                sys.stdout.write(f"    {where}: {one.detail}\n")
    return EXIT_FINDINGS if any(result.found for result in results) else EXIT_DONE
