"""Where one trial lives on the disk: the folder its processes work in, and beside it what is kept of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

import msgspec

from .ledger import Line, read_lines


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a life tells before it ends by itself. `refused`: it could not begin (exit `code`); `error`: it raised."""

    status: str = ""
    result: Any = None
    waiting: list[dict[str, str]] = []
    boundaries: int = 0
    refused: str = ""
    code: int = 3
    error: str = ""
    error_type: str = ""
    verdict: str = ""
    report: str = ""
    reads: list[str] = []


@dataclass(frozen=True)
class Place:
    """The folders and files of one trial. `workspace` is a name inside `files`, or "" for none."""

    folder: str
    workspace: str = ""

    @property
    def files(self) -> str:
        """The current folder of every process."""
        return os.path.join(self.folder, "files")

    @property
    def kept(self) -> str:
        """What is no part of the agent's world: roots, ledger, traces, outputs, its temporary folder."""
        return os.path.join(self.folder, "kept")

    @property
    def root(self) -> str:
        """The root of the (first) journal."""
        return os.path.join(self.kept, "root-1")

    @property
    def ledger(self) -> str:
        return os.path.join(self.kept, "ledger.jsonl")

    def trace(self, life: int) -> str:
        """A line per boundary that a life came to."""
        return os.path.join(self.kept, f"trace-{life}")

    def told(self, life: str) -> str:
        """What a life told before it ended by itself."""
        return os.path.join(self.kept, f"told-{life}.json")

    def output(self, life: str) -> str:
        """What a life printed."""
        return os.path.join(self.kept, f"output-{life}.txt")

    def make(self, template: str) -> None:
        """Create the folders, with a copy of the user's files."""
        os.makedirs(self.kept)
        if template:
            shutil.copytree(template, self.files, symlinks=True)
        os.makedirs(os.path.join(self.files, self.workspace), exist_ok=True)
        os.makedirs(os.path.join(self.kept, "tmp"), exist_ok=True)

    def area(self, path: str) -> str:
        """Whether a path is in the "workspace", "outside", or not counted ("")."""
        if path.startswith(("/dev/", "/proc/", self.kept + os.sep)):
            return ""
        inside = os.path.join(self.files, self.workspace)
        return "workspace" if self.workspace and (path + os.sep).startswith(inside + os.sep) else "outside"

    def lines(self) -> list[Line]:
        """The ledger."""
        return list(read_lines(self.ledger))

    def boundaries(self, life: int) -> list[str]:
        """The labels of the boundaries of a life, in order; of a killed one the last is where it died."""
        try:
            with open(self.trace(life), encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def read_told(self, life: str) -> Told | None:
        """What a life told, None if it was killed before."""
        try:
            with open(self.told(life), "rb") as file:
                return msgspec.json.decode(file.read(), type=Told)
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        """Take it all away."""
        shutil.rmtree(self.folder, ignore_errors=True)
