"""Families by name: what `--to` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from trajlake.runtime.cli_errors import UserError

from .agent_traces import AgentTracesWriter
from .axolotl import AxolotlWriter
from .family import Writer
from .openai_jsonl import OpenAiWriter
from .prime_rl import PrimeRlWriter
from .skyrl import SkyRlWriter
from .tasks import SkyRlTaskWriter, TaskWriter, TrlGrpoWriter, VerifiersWriter, VerlRlWriter
from .trl import TrlWriter
from .verl_sft import VerlSftWriter

SFT: Final[dict[str, Callable[[str], Writer]]] = {
    "openai": OpenAiWriter,
    "trl": TrlWriter,
    "trl-text": lambda folder: TrlWriter(folder, "text"),
    "verl-sft": VerlSftWriter,
    "prime-rl": PrimeRlWriter,
    "skyrl": SkyRlWriter,
    "axolotl": AxolotlWriter,
    "agent-traces": AgentTracesWriter,
}
RLVR: Final[dict[str, Callable[[str], TaskWriter]]] = {
    "verl-rl": VerlRlWriter,
    "skyrl-rl": SkyRlTaskWriter,
    "verifiers": VerifiersWriter,
    "trl-grpo": TrlGrpoWriter,
}


def check_families(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names, sorted and once each; raise `UserError` for one that is none."""
    for name in names:
        if name not in known:
            raise UserError(f"--to {name}: no such family; one of {', '.join(known)}")
    return sorted(set(names))
