"""Importers by name: ours, and those that other packages register under `trajlake.importers`."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Final, cast

from trajlake.runtime.cli_errors import UserError

from .contract import IMPORTERS_GROUP, Importer

BUILT_IN: Final = {
    "anthropic-messages": "anthropic_messages",
    "atif": "atif",
    "claude-code": "claude_code",
    "codex": "codex",
    "inspect": "inspect",
    "kimi": "kimi",
    "langfuse": "langfuse",
    "mini-swe-agent": "mini_swe_agent",
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "openhands": "openhands",
    "otlp": "otlp",
    "pi": "pi",
    "swe-agent": "swe_agent",
    "tau-bench": "tau_bench",
    "tau2-bench": "tau2_bench",
}
"""Format name -> module of this package; only the one asked for is imported."""

AUTO: Final = "auto"


def names() -> list[str]:
    """Return the names of all formats, sorted."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=IMPORTERS_GROUP))})


def importer(name: str) -> Importer:
    """Return the importer of a format; raise `UserError` for a name that none has."""
    if name in BUILT_IN:
        module = importlib.import_module(f"{__package__}.{BUILT_IN[name]}")
        return cast(Importer, module.IMPORTER)
    for point in entry_points(group=IMPORTERS_GROUP):
        if point.name == name:
            loaded = point.load()
            found = loaded() if isinstance(loaded, type) else loaded
            if not isinstance(found, Importer):
                raise UserError(f"importer '{name}' ({point.value}) does not have the contract's name, sniff and read")
            return found
    raise UserError(f"format '{name}' is not known; one of: {', '.join([AUTO, *names()])}")
