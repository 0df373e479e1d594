"""What a policy says beside its answers: attributes of the policy object, each with a default that is safe.

| attribute | default | meaning |
|---|---|---|
| `workspace` | "tracked" | "untracked": files are not kept, a `local` result cannot be applied again |
| `workspace_ignore` | () | globs over paths of the workspace that are no part of it |
| `on_lost_change` | "stop" | "roll_back": go back to the checkpoint when a change cannot be applied again |
| `mtbf_s` | 14,400 | mean time between failures, for the interval between checkpoints |
| `checkpoint_every_turns` | None | a fixed interval instead |
| `checkpoint_before_effect` | False | a checkpoint before effects that the log cannot reproduce or undo |
| `checkpoints_keep` | 2 | how many of an open trajectory are kept |
| `on_drift` | {} | "context", "model", "prompt", "tool_schema": "switch", "pin" or "refuse" |
| `pinned_model(name, version)` | None | brings the recorded model back, or None, where `on_drift` says "pin" |
| `resume_authority` | "" | "always": a resume asks again as soon as any of the budget was spent |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..checkpoints.checkpoint import KEEP
from ..checkpoints.interval import DEFAULT_MTBF_S
from .errors import Misuse


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The attributes of a policy, checked."""

    tracked: bool = True
    ignore: tuple[str, ...] = ()
    rolls_back: bool = False
    mtbf_s: float = DEFAULT_MTBF_S
    every_turns: int | None = None
    before_effect: bool = False
    keep: int = KEEP
    on_drift: Mapping[str, str] = field(default_factory=dict)
    pinned_model: Callable[[str, str], Any] | None = None
    always_asks: bool = False


_CHOICES = {
    "workspace": ("tracked", "untracked"),
    "on_lost_change": ("stop", "roll_back"),
    "resume_authority": ("", "always"),
}


def rules_of(policy: Any) -> Rules:
    """Return what a policy (or None) says. Raises `Misuse` for an attribute that means nothing."""
    said = {name: getattr(policy, name, choices[0]) for name, choices in _CHOICES.items()}
    for name, value in said.items():
        if value not in _CHOICES[name]:
            raise Misuse(f"policy.{name} is {value!r}: it can be {' or '.join(map(repr, _CHOICES[name]))}")
    on_drift = dict(getattr(policy, "on_drift", {}))
    for what, choice in on_drift.items():
        if what not in ("context", "model", "prompt", "tool_schema") or choice not in ("switch", "pin", "refuse"):
            raise Misuse(f"policy.on_drift[{what!r}] is {choice!r}: see runtime/agent/rules.py for what it can be")
    return Rules(
        tracked=said["workspace"] == "tracked",
        ignore=tuple(getattr(policy, "workspace_ignore", ())),
        rolls_back=said["on_lost_change"] == "roll_back",
        mtbf_s=float(getattr(policy, "mtbf_s", DEFAULT_MTBF_S)),
        every_turns=getattr(policy, "checkpoint_every_turns", None),
        before_effect=bool(getattr(policy, "checkpoint_before_effect", False)),
        keep=int(getattr(policy, "checkpoints_keep", KEEP)),
        on_drift=on_drift,
        pinned_model=getattr(policy, "pinned_model", None),
        always_asks=said["resume_authority"] == "always",
    )
