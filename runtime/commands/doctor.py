"""Verb `doctor`: is this disk fit for a journal, and what to expect of it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, ROOT, print_json, settings_of, table


def doctor(
    root: ROOT = None,
    journal: JOURNAL = None,
    count: Annotated[int, typer.Option("--count", min=10, max=100_000, help="Barriers for each scheme.")] = 200,
    as_json: JSON = False,
) -> int:
    """Measure what a barrier takes where the root is, or will be, and warn where it can not be trusted. Exit 1 if so.

    Writes and removes small files there; may run beside agents, whose barriers it then slows down a little.
    """
    from trajlake.runtime.env import REAL_ENV
    from trajlake.runtime.upkeep.device_check import check_device

    folder = REAL_ENV.absolute(settings_of(journal, root=root).journal)
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: cannot be written by this user; name another root", exit_code=3)
    report = check_device(REAL_ENV, folder, count=count)
    if as_json:
        print_json({
            "folder": report.folder, "file_system": report.file_system,
            "device": None if report.device is None else report.device._asdict(),
            "schemes": [scheme._asdict() for scheme in report.schemes],
            "warnings": report.warnings, "expect": report.expect,
        })  # fmt: skip
        return EXIT_FINDINGS if report.warnings else EXIT_DONE
    where = (
        "" if report.device is None else f" on {report.device.name} ({report.device.write_cache or 'cache unknown'})"
    )
    print(one_line(f"{folder}: {report.file_system or 'unknown file system'}{where}"))
    rows = [
        [one.scheme, f"{one.median_us:.0f}", f"{one.p99_us:.0f}", "" if one.flushes is None else f"{one.flushes:.2f}"]
        for one in report.schemes
    ]
    table(("barrier of 1 KB", "p50 µs", "p99 µs", "flushes"), rows, empty="nothing measured")
    for line in report.expect:
        print(f"  {one_line(line)}")
    for line in report.warnings:
        print(f"trajlake: {one_line(line)}", file=sys.stderr)
    return EXIT_FINDINGS if report.warnings else EXIT_DONE
