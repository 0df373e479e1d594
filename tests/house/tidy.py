"""What ruff does not check: sizes, names and leaks. `python tests/house/tidy.py` prints one line a finding, exit 1.

A file has at most 500 lines, a function 60; no module is called by a word that says nothing; no tracked text names a
path of one machine or a package registry. A size is mended by finding the second concept that lives in the file.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
NAMES_BANNED: Final = frozenset({"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "misc"})
TEXT_SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".lock", ".sql", ".sh", ".cfg", ".yaml", ".yml", ""})
MADE_BY_TARGETS: Final = frozenset({"build", "dist", "bench-results", "trajlake-demo", "__pycache__", "__marimo__"})
GENERATED: Final = frozenset({"LICENSE"})

MACHINE_PATH: Final = re.compile(
    r"/work/(main|plan|shared)\b|/(home|Users)/(?!(me|you|user|agent)\b)[a-z]\w*/|/root/\."
)
REGISTRY: Final = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|artifactory|devpi|--(extra-)?index-url|--find-links|--trusted-host"
)


def tree_files(project: Path) -> list[Path]:
    """Return the project's own files: tracked ones and new ones that git does not ignore; all, without git."""
    listing = ["git", "-C", str(project), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(listing, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [
            str(path.relative_to(project)) for path in project.rglob("*") if not is_made(path.relative_to(project))
        ]
    return sorted(path for name in set(names) if name and (path := project / name).is_file())


def is_made(path: Path) -> bool:
    """Whether a path is something that targets and tools made: what .gitignore names, and hidden folders but .ci."""
    return any(
        part in MADE_BY_TARGETS
        or part.endswith(".egg-info")
        or (part.startswith(".") and part not in (".ci", ".gitignore"))
        for part in path.parts
    )


def findings(project: Path, files: list[Path]) -> Iterator[str]:
    """Yield one line for each breach, `file:line: what; what next`."""
    for path in files:
        where = path.relative_to(project)
        if path.suffix not in TEXT_SUFFIXES or path.name in GENERATED or path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield f"{where}: not UTF-8; a text file here is"
            continue
        yield from leaks(where, text)
        if path.suffix == ".py":
            yield from names(where)
            yield from sizes(where, text)


def leaks(where: Path, text: str) -> Iterator[str]:
    """Yield the lines that name a path of one machine or a registry."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := MACHINE_PATH.search(line):
            yield f"{where}:{number}: names a path of one machine ({found.group()}); make it relative or an argument"
        if found := REGISTRY.search(line):
            yield f"{where}:{number}: names a package registry ({found.group()}); pip's configuration does that"


def names(where: Path) -> Iterator[str]:
    """Yield the module, or folder, whose name says nothing."""
    for part in (*where.parts[:-1], where.stem):
        if part in NAMES_BANNED:
            yield f"{where}: '{part}' is no concept; name what it holds"


def sizes(where: Path, text: str) -> Iterator[str]:
    """Yield a file and functions that are too long."""
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{where}: {lines} lines, at most {FILE_LINES_MAX}; move its second concept to a file of its own"
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"{where}:{error.lineno}: no Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{where}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}; split it"


def main() -> int:
    project = Path(__file__).resolve().parents[2]
    found = list(findings(project, tree_files(project)))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
