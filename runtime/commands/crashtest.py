"""Verb `crashtest`: a user's agent, killed at every boundary and resumed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.root import JSON, print_json
from trajlake.runtime.commands.run import MODEL, OBJECT, runner_of

FILES = Annotated[str | None, typer.Option("--files", metavar="FOLDER", help="Copied into the folder of each run.")]
WORKSPACE = Annotated[str, typer.Option("--workspace", metavar="NAME", help="The folder in it that tools change.")]
AT = Annotated[
    list[str] | None, typer.Option("--at", metavar="N|NAME", help="Only this boundary, by number or name; may repeat.")
]
OPTIONS = Annotated[str, typer.Option("--options", metavar="JSON", help="More options of journal.run, as an object.")]


def crashtest(
    agent: Annotated[str, typer.Argument(metavar="MODULE:AGENT", help="The agent.")],
    task: Annotated[str, typer.Option("--task", metavar="JSON", help="Its task.")] = '"crashtest"',
    options: OPTIONS = "{}",
    trajectory_id: Annotated[str, typer.Option("--id", metavar="ID", help="Of the trajectory.")] = "crashtest",
    files: FILES = None,
    workspace: WORKSPACE = "work",
    at: AT = None,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="So many, by --seed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample and the order.")] = 0,
    limit_s: Annotated[float, typer.Option("--limit", metavar="SECONDS", help="Start no more after that.")] = 600.0,
    life_s: Annotated[float, typer.Option("--life-limit", metavar="SECONDS", help="Of one process.")] = 60.0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes at a time.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the scratch folder.")] = False,
    journal_object: OBJECT = None,
    model_object: MODEL = None,
    as_json: JSON = False,
) -> int:
    """Kill an agent at every boundary, resume it, and compare what its tools saw. Exit code 1 for findings.

    Its tools act: point them at stand-ins.
    """
    from trajlake.runtime.crashing.campaign import Campaign, Choice
    from trajlake.runtime.crashing.life import Plan

    if files is not None and not os.path.isdir(files):
        raise UserError(f"--files {files}: no such folder")
    if workspace in ("", ".") or os.path.isabs(workspace) or ".." in workspace.split(os.sep):
        raise UserError(f"--workspace {workspace!r}: a name inside the folder of a run, such as work")
    if at and sample is not None:
        raise UserError("--at and --sample: give one")
    more = _json("--options", options)
    if not isinstance(more, dict):
        raise UserError('--options: give a JSON object, such as \'{"budget": {"turns": "9"}}\'')
    plan = Plan(
        load=lambda: runner_of(agent, None, journal_object, model_object), trajectory_id=trajectory_id,
        task=_json("--task", task), options=more, import_path=os.getcwd(),
    )  # fmt: skip
    choice = Choice(
        agent=agent, at=tuple(at or ()), sample=sample, seed=seed, limit_s=limit_s, life_s=life_s, jobs=jobs,
        template=os.path.abspath(files) if files is not None else "", workspace=workspace,
        keep=keep,
    )  # fmt: skip
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="trajlake-crashtest-"))
    try:
        report = Campaign(plan, choice, scratch).run(_progress if sys.stderr.isatty() else _silent)
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    report.scratch = scratch if keep else ""
    if as_json:
        print_json(report.as_json())
    else:
        print(report.text())
    return 1 if report.kept else 0


def _json(option: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UserError(f"{option} {text!r}: not JSON ({error}); a text needs quotes of its own: '\"text\"'") from None


def _progress(done: int, of: int) -> None:
    end = "\n" if done == of else "\r"
    sys.stderr.write(f"{done}/{of} boundaries{end}")
    sys.stderr.flush()


def _silent(done: int, of: int) -> None:
    """Nobody looks."""
