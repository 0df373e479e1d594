"""`trajlake import rewards` and `trajlake annotate`: judgements into a root, or straight into a lake."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, UserError
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load

from ..inbox import open_inbox
from ..judgements import Written, infos_of, write_judgements
from ..reward_files import Judged, read_rewards


def import_rewards(
    settings: Any, paths: list[str], kind: str, verifier: str, version: str, *, into_lake: bool, as_json: bool
) -> int:
    """Read results of evaluations and write them as judgement trajectories."""
    from ..sources import find_sources

    if not paths:
        raise UserError(
            "name a file of results: trajlake import rewards PATH...; "
            "kinds: rows, tau-bench, tau2-bench, swe-bench, inspect"
        )

    def judged(known: set[str]) -> list[Judged]:
        return [one for source in find_sources(paths) for one in read_rewards(source, kind, known, verifier, version)]

    return _write(settings, judged, into_lake, as_json)


def annotate(
    trajectories: Annotated[list[str], typer.Argument(metavar="ID...", help="trajectories to judge")],
    value: Annotated[str, typer.Option("--value", help="a reward, as a number")] = "",
    label: Annotated[str, typer.Option("--label", help="a label, such as good or replay")] = "",
    text: Annotated[str, typer.Option("--text", help="what there is to say")] = "",
    author: Annotated[str, typer.Option("--author", help="opaque key of who judges")] = "person",
    version: Annotated[str, typer.Option("--version", help="version of the verifier")] = "",
    journal: Annotated[str | None, typer.Option("--journal", help="root to write into")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="write, ship and compact into this lake at once")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="tenant of the trajectories")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="also what is not there: it may come later")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> int:
    """Judge trajectories: a reward (--value), or a label and a text. A batch of one judgement trajectory."""
    if not value and not label:
        raise UserError("annotate: give --value or --label")
    settings = load(journal=journal, lake=lake, tenant=tenant)
    judged = [
        Judged(
            trajectory_id=one, verifier=author, verifier_version=version, value=_number(value), label=label, text=text
        )
        for one in trajectories
    ]
    if not anyway:
        _refuse_unknown(trajectories, settings, into_lake=lake is not None)
    return _write(settings, lambda _: judged, lake is not None, as_json)


def _refuse_unknown(trajectories: list[str], settings: Any, *, into_lake: bool) -> None:
    """A judgement of a trajectory that is not there is a slip of the pen, unless somebody says otherwise."""
    from ..export.source import open_source

    if into_lake:
        known = set(open_source(None, settings.lake, settings.tenant).trajectory_ids())
    else:
        infos = infos_of(Root.open(settings.journal, create=False))
        known = {info.trajectory_id for info in infos if info.tenant == settings.tenant}
    unknown = [one for one in trajectories if one not in known]
    if unknown:
        named = ", ".join(map(ascii, unknown[:5])) + (f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else "")
        place = settings.lake if into_lake else settings.journal
        raise UserError(
            f"annotate: no trajectory {named} of tenant {settings.tenant!r} in {place}; "
            "--anyway judges what is not there"
        )


def _number(value: str) -> str:
    try:
        float(value or 0)
    except ValueError:
        raise UserError(f"annotate: --value {ascii(value)}: no number") from None
    return value


def _write(settings: Any, judged: Callable[[set[str]], list[Judged]], into_lake: bool, as_json: bool) -> int:
    """Write what `judged` makes of the trajectories that are known, into a root or by a lake's inbox."""
    run = None
    if into_lake:
        with open_inbox(settings.lake, settings.tenant) as inbox:
            # What came straight into the lake stands in no journal.
            elsewhere = inbox.side.trajectories()
            made = _written(inbox.root, judged, settings.tenant, elsewhere)
            run = inbox.commit()
    else:
        made = _written(Root.open(settings.journal), judged, settings.tenant, set())
    _show(made, run, as_json)
    return EXIT_DONE


def _written(
    root: Root, judged: Callable[[set[str]], list[Judged]], tenant: str, elsewhere: set[tuple[str, str]]
) -> list[Written]:
    known = {info.trajectory_id for info in infos_of(root)} | {name for whose, name in elsewhere if whose == tenant}
    return write_judgements(root, judged(known), tenant, elsewhere)


def _show(made: list[Written], run: dict[str, Any] | None, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode({"judgements": made, "lake": run}).decode())
        return
    for one in made:
        state = "known already" if one.known else "written"
        who = f"{one.verifier} {one.verifier_version}".rstrip()
        print(f"{who}: {one.judgements:,} judgements, {state}: {one.trajectory_id}")
    if run is not None:
        sys.stdout.write(f"lake: snapshot {run.get('snapshot')}, {run.get('outcome')}\n")
