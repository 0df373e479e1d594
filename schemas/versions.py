"""Schema versions: what this code reads, how older payloads become current ones, and which may be resumed.

Reading upcasts, purely and never written back: the text on disk keeps its version and its hash. Resuming
is stricter: a migration of intent is a new plan, so only versions declared compatible here go on working.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from .errors import InvalidEvent, UnknownVersion

CURRENT_SCHEMA_VERSION: Final = 1
CURRENT: Final = CURRENT_SCHEMA_VERSION

Body = dict[str, Any]
Upcast = Callable[[Body], Body]

UPCASTS: Final[Mapping[tuple[str, int], Upcast]] = {}
"""(type, version) -> the step from that version to the next. A type without a step reads the same in both."""

OLDEST_READABLE: Final[Mapping[str, int]] = {}
"""Type -> oldest version still read, where that is not 1."""

RESUMABLE: Final[Mapping[int, str]] = {1: "the current version"}
"""Versions that a run may go on from, each with the reason why that is safe."""


class Verdict(NamedTuple):
    """Whether something is allowed, and why in one line fit for a user."""

    ok: bool
    reason: str


def readable(event_type: str, version: int) -> bool:
    """Return whether this code reads payloads of `event_type` written under `version`."""
    return OLDEST_READABLE.get(event_type, 1) <= version <= CURRENT_SCHEMA_VERSION


def check_readable(event_type: str, version: int) -> None:
    """Raise `UnknownVersion` for a newer payload, `InvalidEvent` for a version that never existed."""
    if version > CURRENT_SCHEMA_VERSION:
        raise UnknownVersion(
            f"{event_type} was written under schema version {version}, this trajlake reads up to "
            f"{CURRENT_SCHEMA_VERSION}: upgrade trajlake to read it"
        )
    if not readable(event_type, version):
        oldest = OLDEST_READABLE.get(event_type, 1)
        raise InvalidEvent(f"{event_type} names schema version {version}; this trajlake reads from {oldest} on")


def upcast(
    event_type: str,
    version: int,
    body: Body,
    *,
    current: int = CURRENT_SCHEMA_VERSION,
    steps: Mapping[tuple[str, int], Upcast] = UPCASTS,
) -> Body:
    """Return the decoded payload as version `current` writes it; `body` itself when nothing differs.

    Pure: `body` is left as it was by every step. Raises as `check_readable` does.
    """
    if version > current or version < 1:
        check_readable(event_type, version)
        raise UnknownVersion(f"{event_type}: schema version {version} is newer than {current}")
    for at in range(version, current):
        step = steps.get((event_type, at))
        if step is not None:
            body = step(body)
    return body


def resumable(version: int) -> Verdict:
    """Return whether a trajectory written under `version` may be resumed by this code, and why (not)."""
    reason = RESUMABLE.get(version)
    if reason is not None:
        return Verdict(True, reason)
    if version > CURRENT_SCHEMA_VERSION:
        return Verdict(
            False,
            f"the log was written under schema version {version}, this trajlake knows {CURRENT_SCHEMA_VERSION}: "
            "upgrade trajlake, then resume",
        )
    return Verdict(
        False,
        f"schema version {version} is not declared compatible with {CURRENT_SCHEMA_VERSION} for resuming: "
        "read it, or start a new trajectory from it",
    )
