"""The pages tell the truth: their commands run, their links lead somewhere, every folder has one.

A fenced block marked `console` is run, top to bottom, one folder a page: lines that start with `$ ` are commands, the
rest is what a reader sees. `console exit=2` expects that code; `console norun` is shown only (set-up, long services)
and has to be a make target or start with one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("schemas", "runtime", "ingest", "pipelines", "sql", "notebooks", "tests")
PAGES = [PROJECT / "README.md", *(PROJECT / folder / "README.md" for folder in FOLDERS)]
FENCE = re.compile(r"^```console(?P<marks>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
PAGE_S_MAX = 240


class Step(NamedTuple):
    """One command of a page and the exit code that the page promises."""

    command: str
    exit_code: int
    is_run: bool


def steps(text: str) -> list[Step]:
    """Return the commands of a page's `console` blocks in order; a trailing backslash continues a line."""
    found = []
    for block in FENCE.finditer(text):
        marks = block["marks"].split()
        code = next((int(mark.removeprefix("exit=")) for mark in marks if mark.startswith("exit=")), 0)
        lines = block["body"].replace("\\\n", " ").splitlines()
        found += [Step(line[2:], code, "norun" not in marks) for line in lines if line.startswith("$ ")]
    return found


def page_id(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.timeout(PAGE_S_MAX + 30)
@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAJLAKE_")}
    environment["PATH"] = scripts + os.pathsep + environment.get("PATH", "")
    for step in steps(page.read_text()):
        if not step.is_run:
            assert step.command.startswith("make "), step.command
            continue
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PAGE_S_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == step.exit_code, f"$ {step.command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_the_make_targets_that_the_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"(?:^|`|\$ )\s*make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_the_readme_makes_the_promise_in_its_words_and_no_stronger_one() -> None:
    text = " ".join((PROJECT / "README.md").read_text().split())
    assert (
        "No acknowledged event is lost. No effect is dispatched a second time unless it carries the same idempotency "
        "key, or a recorded probe or person said it did not happen." in text
    )
    assert "What it cannot know" in text
    everywhere = " ".join(page.read_text() for page in PAGES)
    assert not re.search(r"exactly[ -]once", everywhere, re.IGNORECASE)
