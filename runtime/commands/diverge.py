"""Verb `diverge`: where two recorded trajectories part, and why."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.replay import LAKE, source_of, suite_of
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, print_json


def diverge(
    a: Annotated[str, typer.Argument(metavar="A", help="A trajectory.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one of the same task.")],
    journal: JOURNAL = None,
    lake: LAKE = None,
    tenant: TENANT = None,
    as_json: JSON = False,
) -> int:
    """Name the first turn whose action differs, the first whose context differs, the source and the component.

    Exit code 1 when they part.
    """
    from trajlake.runtime.branches.divergence import diverge as compare
    from trajlake.runtime.replaying.lineage import LineageBroken

    source = source_of(suite_of("", journal, lake, tenant, None))
    found = []
    for name in (a, b):
        record = source.record(name)
        if record is None:
            raise UserError(f"no trajectory {name!r} is recorded; check the id, --journal or --lake, and --tenant")
        if record.outline.problem:
            raise UserError(f"trajectory {name!r} cannot be compared: {record.outline.problem}")
        found.append(record)
    try:
        answer = compare(*found)
    except LineageBroken as why:
        raise UserError(f"a branch cannot be compared: {why}") from None
    if as_json:
        tree = msgspec.to_builtins(answer, enc_hook=repr)
        print_json(tree | {"cause": msgspec.to_builtins(answer.cause, enc_hook=repr)})
    else:
        print(answer.text())
    return 0 if answer.cause is None else 1
