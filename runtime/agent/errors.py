"""Errors of the durable agent, chosen by what the caller must do next.

AgentError
├── Conflict            use another id: this one was started with another task
├── UnknownTrajectory   give a task: nothing is recorded under this id
├── Busy                try later, elsewhere: another worker holds the lease, or took it over meanwhile
├── Diverged            run the old code, or close the turn: the code asks for something else than it did
├── ResumeRefused       a person decides: going on would not be the same work (`reason` says why)
├── ModelFailed         the model gave no reply in all attempts; each attempt is recorded
├── BudgetExhausted     raise the limit (`t.budget.revise`) or end: a call would exceed it
└── Misuse              fix the program: wrong thread, sync call in a running loop, work after the end, ...
Unwind (BaseException)  never caught by an agent: Parked, Moved, Cancelled
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of the agent's errors; its text is one line fit for a user. `exit_code` is what a command ends with."""

    exit_code = 2


class Conflict(AgentError):
    """The trajectory exists with another task, or two different events stand under one number and token."""


class UnknownTrajectory(AgentError):
    """No event is recorded under this id, and no task was given to start it."""


class Busy(AgentError):
    """Another worker holds the trajectory's lease, or this one can no longer prove that it does."""

    exit_code = 3


class Diverged(AgentError):
    """A served operation differs from the recorded one. `operation` is its name, turn by turn."""

    def __init__(self, turn: int, operation: str, recorded: object, now: object, cause: str = "changed") -> None:
        self.turn, self.operation, self.recorded, self.now, self.cause = turn, operation, recorded, now, cause
        super().__init__(
            f"turn {turn}: operation {operation} {cause}: recorded {_short(recorded)}, now {_short(now)}; "
            "run the code that recorded it, or 'trajlake resume --close-turn'"
        )


class ResumeRefused(AgentError):
    """The trajectory may not go on. `reason` is one word of the decision table in design/agent.md."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"resume refused ({reason})" + (f": {detail}" if detail else ""))


class ModelFailed(AgentError):
    """Every attempt of one model call failed; the last failure is the text."""

    exit_code = 3


class BudgetExhausted(AgentError):
    """A model call was denied: `unit` has nothing left."""

    def __init__(self, unit: str, left: str) -> None:
        self.unit, self.left = unit, left
        super().__init__(f"budget: {unit} has {left} left; raise it with t.budget.revise, or end the task")


class Misuse(AgentError):
    """The program breaks a rule of the interface; the text names it."""


class Unwind(BaseException):
    """Carries control out of an agent. An agent that swallows it is stopped at its next operation."""


class Parked(Unwind):
    """The trajectory waits for a person, or for mail, without a worker."""


class Moved(Unwind):
    """The process is to end: another worker goes on where the turn ended."""


class Cancelled(Unwind):
    """Somebody asked to stop the trajectory."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
