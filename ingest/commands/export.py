"""`trajlake export ID... --to FORMAT`: trajectories of a root or a lake as another tool's format."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, UserError, one_line
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from ..export.source import EventSource
    from ..export.turns import Losses

FORMATS: Final = ("atif", "openai-chat", "hf-traces", "otlp", "jsonl")
ENDINGS: Final = {"atif": ".trajectory.json", "otlp": ".otlp.jsonl"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@+-]+")


def export(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="trajectory ids; 'claude-code/*' for all of them")],
    to: Annotated[str, typer.Option("--to", help=" | ".join(FORMATS))] = "",
    journal: Annotated[str | None, typer.Option("--journal", help="root to read from")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="lake to read from, instead of a root")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="tenant the trajectories belong to")] = None,
    out: Annotated[str, typer.Option("--out", help="write one file for each into this folder, not to the output")] = "",
    arguments: Annotated[str, typer.Option("--arguments", help="openai-chat: 'str' (as emitted) or 'dict'")] = "str",
    prompts: Annotated[str, typer.Option("--prompts", help="otlp: 'full', or 'new' for what is new in each")] = "full",
    each: Annotated[bool, typer.Option("--each", help="say what is lost for each trajectory, not the sum")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="what the format cannot hold, for each, as JSON")] = False,
) -> int:
    """Write trajectories in another tool's format, and say on standard error what that format cannot hold."""
    from ..export.source import matching, open_source

    if to not in FORMATS:
        raise UserError(f"export: --to {to or '(nothing)'} is no format; one of: {', '.join(FORMATS)}")
    if arguments not in ("str", "dict"):
        raise UserError(f"export: --arguments {arguments}: give 'str' or 'dict'")
    if prompts not in ("full", "new"):
        raise UserError(f"export: --prompts {prompts}: give 'full' or 'new'")
    settings = load(journal=journal, lake=lake, tenant=tenant)
    source = open_source(settings.journal, settings.lake if lake is not None else None, settings.tenant)
    reports = []
    for name in matching(source, ids):
        losses = _export_one(source, name, to, out, arguments=arguments, prompts=prompts)
        reports.append({"trajectory_id": name, "format": to, "cannot_hold": losses.counts})
        if each and not as_json:
            _tell(name, losses.counts)
    if not as_json and not each:
        _tell_sum(reports)
    if as_json:
        print(msgspec.json.encode(reports).decode(), file=sys.stdout if out else sys.stderr)
    return EXIT_DONE


def _export_one(source: EventSource, name: str, to: str, out: str, **how: str) -> Losses:
    from ..export.jsonl import blobs_of
    from ..export.turns import Losses

    events = source.events(name)
    if not events:
        raise UserError(f"{name}: no such trajectory; 'trajlake status' lists a root's, 'trajlake sql' a lake's")
    losses = Losses()
    lines = _lines(source, events, to, losses, **how)
    blobs = blobs_of(events) if to == "jsonl" else []
    if not out:
        for line in lines:
            print(line)
        losses.add("blobs (written by hash only; --out writes them beside)", len(blobs))
        return losses
    os.makedirs(out, exist_ok=True)
    stem = _UNSAFE.sub("-", name).strip("-.") or "trajectory"
    with open(os.path.join(out, stem + ENDINGS.get(to, ".jsonl")), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    for sha256 in blobs:
        folder = os.path.join(out, "blobs")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, sha256), "wb") as file_of_blob:
            file_of_blob.write(source.blob(sha256))
    return losses


def _lines(
    source: EventSource, events: list[Any], to: str, losses: Losses, *, arguments: str, prompts: str
) -> Iterator[str]:
    from ..export import atif, hf_traces, jsonl, openai_chat, otlp
    from ..export.turns import Conversation

    if to == "jsonl":
        return jsonl.lines(events, losses)
    conversation = Conversation(events, source.blob)
    if to == "atif":

        def embedded(parent: str) -> list[Conversation]:
            names = [one for one in source.trajectory_ids() if one.startswith(f"{parent}/")]
            found = [Conversation(source.events(one), source.blob) for one in names]
            return [one for one in found if one.start.parent and one.start.parent.trajectory_id == parent]

        return atif.write(conversation, losses, embedded)
    if to == "openai-chat":
        return openai_chat.write(conversation, losses, arguments=arguments)
    if to == "hf-traces":
        return hf_traces.write(conversation, losses)
    return otlp.write(conversation, losses, prompts=prompts)


def _tell_sum(reports: list[dict[str, Any]]) -> None:
    """Say what is lost by kind, over all trajectories; of one trajectory in its name."""
    sums: dict[str, int] = {}
    for report in reports:
        for what, count in report["cannot_hold"].items():
            sums[what] = sums.get(what, 0) + count
    _tell(reports[0]["trajectory_id"] if len(reports) == 1 else f"{len(reports):,} trajectories", sums)


def _tell(name: str, counts: dict[str, int]) -> None:
    for what, count in sorted(counts.items()):
        print(f"trajlake: {one_line(name)}: cannot hold {count:,} {one_line(what)}", file=sys.stderr)
