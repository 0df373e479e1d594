"""The tools' own view: one line at each entry and exit of a body, synced, in a file that the journal knows nothing of.

A line is what the outside would have seen. Several threads may write; one process at a time does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was seen while a body ran. `sent`: a hash of all that left, "" if nothing was seen to leave or it cannot be
    compared; `key_sent`: the key was in it. `changes`: what it did to files and services, in words.
    """

    key_read: bool = False
    key_sent: bool = False
    sent: str = ""
    draws: list[str] = []
    files: list[str] = []
    outside: list[str] = []
    requests: list[str] = []
    unseen: list[str] = []


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. `kind`: enter, leave, or harness (the agent's own code acted: `what`, `place`).

    `visit` pairs enter and leave within a `life`. `action` is "" for a tool called outside a turn. `ended`: ok,
    not_executed, tool_error, or unknown.
    """

    kind: str
    life: int
    visit: int = 0
    tool: str = ""
    effect: str = ""
    keyed: bool = False
    trajectory_id: str = ""
    action: str = ""
    attempt: int = 0
    key: str = ""
    arguments_hash: str = ""
    intent_durable: bool = True
    ended: str = ""
    output: Any = None
    seen: Seen | None = None
    what: str = ""
    place: str = ""


class Ledger:
    """Appends lines; each is on the disk when `write` returns."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, line: Line) -> None:
        """Append one line, in one write, and sync it."""
        os.write(self._fd, msgspec.json.encode(line) + b"\n")
        os.fdatasync(self._fd)


class Visit(msgspec.Struct, kw_only=True):
    """One run of a body: its entry, and its exit if it came to one."""

    enter: Line
    leave: Line | None = None

    @property
    def done(self) -> bool:
        """Whether the body ended well: the effect happened."""
        return self.leave is not None and self.leave.ended == "ok"


def read_lines(path: str) -> Iterator[Line]:
    """Every line of a ledger, () if there is none; a last line that was cut short is left out."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        for text in file:
            if text.endswith(b"\n"):
                yield msgspec.json.decode(text, type=Line)


def visits_of(lines: list[Line]) -> list[Visit]:
    """Pair entries with exits, in the order of the entries."""
    found: dict[tuple[int, int], Visit] = {}
    for line in lines:
        if line.kind == "enter":
            found[line.life, line.visit] = Visit(enter=line)
        elif line.kind == "leave":
            found[line.life, line.visit].leave = line
    return list(found.values())
