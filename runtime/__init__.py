"""The journal and the durable agent: intents reach the disk before effects leave the host.

    from trajlake.runtime import Journal, Retry, Call, NotExecuted, ToolError

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .agent.errors import (
        AgentError,
        BudgetExhausted,
        Busy,
        Cancelled,
        Conflict,
        Diverged,
        Misuse,
        ModelFailed,
        Parked,
        ResumeRefused,
        UnknownTrajectory,
    )
    from .agent.outcome import Outcome, Waiting
    from .branches.branching import BranchReport, Change, Stubs, branch, resume_branch
    from .journal import Journal
    from .replaying.replay_run import Report, replay
    from .tools import (
        NOT_EXECUTED,
        UNKNOWN,
        Allow,
        Ask,
        Call,
        Deny,
        Executed,
        NotExecuted,
        Refuse,
        Result,
        Retry,
        Tool,
        ToolError,
        cut,
    )

_HOMES: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("AgentError", "BudgetExhausted", "Busy", "Cancelled", "Conflict", "Diverged", "Misuse", "ModelFailed",
         "Parked", "ResumeRefused", "UnknownTrajectory"),
        "agent.errors",
    ),
    **dict.fromkeys(
        ("NOT_EXECUTED", "UNKNOWN", "Allow", "Ask", "Call", "Deny", "Executed", "NotExecuted", "Refuse", "Result",
         "Retry", "Tool", "ToolError", "cut"),
        "tools",
    ),
    **dict.fromkeys(("Report", "replay"), "replaying.replay_run"),
    **dict.fromkeys(("BranchReport", "Change", "branch", "resume_branch"), "branches.branching"),
    "Stubs": "branches.branch_stubs",
    "Journal": "journal",
    "Outcome": "agent.outcome",
    "Waiting": "agent.outcome",
}  # fmt: skip

__all__ = [
    "NOT_EXECUTED",
    "UNKNOWN",
    "AgentError",
    "Allow",
    "Ask",
    "BranchReport",
    "BudgetExhausted",
    "Busy",
    "Call",
    "Cancelled",
    "Change",
    "Conflict",
    "Deny",
    "Diverged",
    "Executed",
    "Journal",
    "Misuse",
    "ModelFailed",
    "NotExecuted",
    "Outcome",
    "Parked",
    "Refuse",
    "Report",
    "Result",
    "ResumeRefused",
    "Retry",
    "Stubs",
    "Tool",
    "ToolError",
    "UnknownTrajectory",
    "Waiting",
    "branch",
    "cut",
    "replay",
    "resume_branch",
]

# One logger for the whole project; it stays silent until the application configures logging.
logging.getLogger("trajlake").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
