"""The verbs that `runtime` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "init": ("trajlake.runtime.cli_settings:init", "write a commented trajlake.toml"),
    "config": ("trajlake.runtime.cli_settings:config", "show the settings in force and where each comes from"),
    "journal": ("", "look into a root's segments: ls, verify, tail"),
}
