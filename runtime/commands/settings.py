"""The verbs `init` and `config`: write a settings file, show the settings in force."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.settings import FILE_NAME, SETTINGS, load, template


def init(
    folder: Annotated[str, typer.Argument(help="Where to write it.", show_default="here")] = ".",
) -> None:
    """Write a commented trajlake.toml. A file that is there already is never touched."""
    path = Path(folder) / FILE_NAME
    try:
        with open(path, "x", encoding="utf-8", opener=_private) as file:
            file.write(template())
    except FileExistsError:
        raise UserError(f"{path}: exists already and stays as it is; edit it, or remove it first") from None
    print(path)


def config(
    journal: Annotated[str | None, typer.Option(help="As a verb would take it.")] = None,
    landing: Annotated[str | None, typer.Option(help="As a verb would take it.")] = None,
    lake: Annotated[str | None, typer.Option(help="As a verb would take it.")] = None,
    tenant: Annotated[str | None, typer.Option(help="As a verb would take it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the settings in force and where each comes from."""
    settings = load(journal=journal, landing=landing, lake=lake, tenant=tenant)
    values = settings._asdict()
    if as_json:
        rows = {name: {"value": values[name], "from": origin} for name, origin in settings.origins.items()}
        print(json.dumps(rows, indent=2))
        return
    width = max(len(values[setting.name]) for setting in SETTINGS)
    for setting in SETTINGS:
        print(f"{setting.name:<8} {values[setting.name]:<{width}}  from {settings.origins[setting.name]}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
