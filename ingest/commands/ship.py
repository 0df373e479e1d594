"""`trajlake ship ROOT --to URL --warm URL`: sealed segments, blobs and import reports to a landing; events, as they
become durable, to the warm tier.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load

from ..landing_store import open_landing
from ..shipper import Shipper, ShipReport
from ..warm import WarmReport, WarmShipper


def ship(
    root: Annotated[str | None, typer.Argument(metavar="[ROOT]", help="root to ship (default: the setting)")] = None,
    to: Annotated[str | None, typer.Option("--to", help="landing: a folder or a URL")] = None,
    journal: Annotated[str | None, typer.Option("--journal", help="the root, as an option")] = None,
    warm: Annotated[str | None, typer.Option("--warm", help="warm tier: postgresql://HOST/DB")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="keep shipping")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="seconds between two looks with --follow")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> int:
    """Copy sealed segments to the landing, each after the blobs it names, then the import reports.

    With --warm, events go to PostgreSQL too (there alone, unless --to is given): those of the active segment as soon
    as they are durable. Credentials for it come from PGPASSWORD, PGPASSFILE or ~/.pgpass.

    May be killed and run again at any time: what stands there is passed over. Exit 1 if a blob is missing or a
    journal cannot be read on.
    """
    settings = load(journal=root or journal, landing=to)
    opened = Root.open(settings.journal, create=False)
    tier = _warm_shipper(opened, warm) if warm else None
    shipper = Shipper(opened, open_landing(settings.landing, opened.env)) if to or not tier else None
    if not follow:
        return _ship_once(shipper, tier, as_json)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    beside = None
    if tier is not None:
        # The landing has a thread of its own: a large segment on its way there must not hold events back.
        beside = threading.Thread(target=_follow_warm, args=(tier, stop, as_json), name="trajlake-warm")
        beside.start()
    try:
        while not stop.is_set():
            if shipper is not None:
                _ship_round(shipper, as_json)
            if beside is not None and not beside.is_alive():
                raise UserError("the warm tier's thread ended; see above, then start again", exit_code=3)
            stop.wait(every_s)
    finally:
        stop.set()
        if beside is not None:
            beside.join()
    return EXIT_DONE


def _ship_round(shipper: Shipper, as_json: bool) -> None:
    """One round to the landing; one that does not answer is tried again in the next, for as long as it takes."""
    try:
        report = shipper.run()
    except OSError as error:
        print(f"trajlake: landing: {one_line(str(error))}; trying again", file=sys.stderr, flush=True)
        return
    if report.segments_shipped or report.imports_put or report.missing:
        show(report, as_json)


def _ship_once(shipper: Shipper | None, tier: WarmShipper | None, as_json: bool) -> int:
    findings = False
    if tier is not None:
        told = tier.run()
        show_warm(told, as_json)
        findings = bool(told.trouble)
    if shipper is not None:
        report = shipper.run()
        show(report, as_json)
        findings = findings or bool(report.missing)
    return EXIT_FINDINGS if findings else EXIT_DONE


def _warm_shipper(root: Root, url: str) -> WarmShipper:
    from ..stores.opener import check_warm, open_postgres

    check_warm(url)
    return WarmShipper(root, open_postgres("warm", url))


def _follow_warm(tier: WarmShipper, stop: threading.Event, as_json: bool) -> None:
    tier.follow(stop, told=lambda report: show_warm(report, as_json))


def show_warm(report: WarmReport, as_json: bool) -> None:
    """Print one round of the warm tier."""
    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    print(f"{report.warm}: {report.events:,} events, of which {report.duplicates:,} were there", flush=True)
    for line in report.trouble:
        print(f"trajlake: {one_line(line)}", file=sys.stderr, flush=True)


def show(report: ShipReport, as_json: bool) -> None:
    """Print one run's report."""
    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    print(
        f"{report.landing}: {report.segments_shipped:,} segments, {report.blobs_put:,} blobs, "
        f"{report.imports_put:,} import reports put ({report.bytes_put:,} bytes); "
        f"{report.segments_there:,} segments were there, {report.waiting:,} not sealed yet",
        flush=True,
    )
    for line in report.missing:
        print(f"trajlake: {one_line(line)}", file=sys.stderr)
