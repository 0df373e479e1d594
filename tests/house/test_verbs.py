"""Every verb: quick help without any extra, one owner, a line of documentation."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_arrows import HEAVY
from trajlake.runtime.cli import installed_verbs

HELP_S_MAX = 2.0
LIST_S_MAX = 0.6
"""CPU seconds; on an idle machine the reader waits about as long."""
VERBS = installed_verbs()
WITHOUT_EXTRAS = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(HEAVY)!r}))  # None: the import fails as on a machine without the package
from trajlake.runtime.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run_without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def cpu_s(*arguments: str) -> float:
    """Return the CPU seconds of one call: what the code costs, not what the neighbours do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "trajlake.runtime", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_of_a_verb_needs_no_extra(verb: str) -> None:
    done = run_without_extras(*verb.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: trajlake {verb}" in done.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_of_a_verb_comes_within_two_seconds(verb: str) -> None:
    assert cpu_s(*verb.split(), "--help") < HELP_S_MAX


def test_the_list_of_verbs_comes_within_0_6_seconds() -> None:
    assert cpu_s("--help") < LIST_S_MAX


def test_the_list_of_verbs_imports_no_verb() -> None:
    code = (
        "import sys; from trajlake.runtime.cli import main; main(['--help']); "
        "print([m for m in sys.modules if m.startswith('trajlake.') and '.commands.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_summary_of_a_verb_fits_on_one_line(verb: str) -> None:
    summary = VERBS[verb].summary
    assert 0 < len(summary) <= 80
    assert summary == " ".join(summary.split()).rstrip(".")


def test_every_verb_is_documented_in_a_readme(project: Path) -> None:
    pages = [project / "README.md", *sorted(project.glob("*/README.md"))]
    text = "\n".join(page.read_text() for page in pages)
    missing = [verb for verb in VERBS if VERBS[verb].target and not re.search(rf"trajlake {verb}\b", text)]
    assert missing == [], "add a line with 'trajlake VERB' to the README of the folder that owns it"
