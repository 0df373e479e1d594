"""`trajlake import rewards` and `trajlake annotate`: judgements into a root, or straight into a lake."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, UserError
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load

from .judgements import Written, infos_of, write_judgements
from .lake_side import LakeSide
from .reward_files import Judged, read_rewards


def import_rewards(
    settings: Any, paths: list[str], kind: str, verifier: str, version: str, *, into_lake: bool, as_json: bool
) -> int:
    """Read results of evaluations and write them as judgement trajectories."""
    from .sources import find_sources

    if not paths:
        raise UserError(
            "name a file of results: trajlake import rewards PATH...; "
            "kinds: rows, tau-bench, tau2-bench, swe-bench, inspect"
        )
    root = _root(settings, into_lake)
    known = {info.trajectory_id for info in infos_of(root)}
    if into_lake:
        # What came straight into the lake stands in no journal: its loss reports name it.
        for report in LakeSide(settings.lake, root, settings.tenant).reports().values():
            known.update(report.trajectories)
    judged: list[Judged] = []
    for source in find_sources(paths):
        judged += read_rewards(source, kind, known, verifier, version)
    return _write(root, settings, judged, into_lake, as_json)


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
    return _write(_root(settings, lake is not None), settings, judged, lake is not None, as_json)


def _refuse_unknown(trajectories: list[str], settings: Any, *, into_lake: bool) -> None:
    """A judgement of a trajectory that is not there is a slip of the pen, unless somebody says otherwise."""
    from .export.source import open_source

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


def _root(settings: Any, into_lake: bool) -> Root:
    if not into_lake:
        return Root.open(settings.journal)
    from .into_lake import inbox_of

    return Root.open(inbox_of(settings.lake)[0])


def _write(root: Root, settings: Any, judged: list[Judged], into_lake: bool, as_json: bool) -> int:
    made = write_judgements(root, judged, settings.tenant)
    run = None
    if into_lake:
        from .into_lake import inbox_of, lake_commit
        from .landing_store import open_landing
        from .shipper import Shipper

        landing = inbox_of(settings.lake)[1]
        Shipper(root, open_landing(landing, root.env)).run()
        run = lake_commit()(landing, settings.lake)
    _show(made, run, as_json)
    return EXIT_DONE


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
