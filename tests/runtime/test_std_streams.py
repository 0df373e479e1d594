"""What a shell may do to the standard streams, and what imported modules and stores may raise: one line, one code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajlake.ingest.landing_store import LandingRefused, RemoteLanding
from trajlake.ingest.stores.store_errors import StoreUnreachable
from trajlake.runtime import cli
from trajlake.runtime.cli_errors import UserError, line_and_code
from trajlake.runtime.named_module import imported
from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import trajectory_key


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which $T is the command."""
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "T": f"{sys.executable} -m trajlake.runtime", **variables},
    )  # fmt: skip


def test_a_closed_stdout_is_never_the_number_of_a_file_that_the_verb_opens(tmp_path: Path) -> None:
    ran = shell("$T config --json >&- && $T init >&-", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "trajlake.toml" not in (tmp_path / "trajlake.toml").read_text()  # what init prints


def test_a_stderr_that_takes_nothing_leaves_the_exit_code_as_it_is(tmp_path: Path) -> None:
    assert shell("$T status --journal nothere 2>/dev/full", tmp_path).returncode == 2
    assert shell("$T status --journal nothere 2>&-", tmp_path).returncode == 2


def test_what_the_terminal_cannot_encode_is_escaped_and_json_stays_json(tmp_path: Path) -> None:
    named = "j\u2026\U0001f4a5"
    ran = shell(f"$T config --json --journal '{named}'", tmp_path, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert named in json.dumps(json.loads(ran.stdout), ensure_ascii=False)


def test_an_argument_that_is_no_text_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["init", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main(["show", "order\udcff", "--journal", str(tmp_path / "none")]) == 2
    with pytest.raises(InvalidId, match="lone surrogate"):
        trajectory_key("default", "order\udcff")
    assert (
        str(cli.no_text(["show", "o\udcff"])) == "'o\\udcff': is no text in UTF-8, which this needs; use another name"
    )
    assert cli.no_text(["show", "o"]) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("no_such_module_here:f", "run where the module can be imported"),
        ("os:no_such_name", "check the name"),
        (".:f", "mend it"),
        ("os", "expected module:name"),
        ("breaks_when_imported:f", "importing breaks_when_imported raised ZeroDivisionError"),
        ("is_no_python:f", "importing is_no_python raised SyntaxError"),
    ],
)
def test_whatever_importing_a_named_module_raises_is_one_line(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_when_imported.py").write_text("1 / 0\n")
    (tmp_path / "is_no_python.py").write_text("def (\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="agent '") as refused:
        imported(name, "agent")
    assert part in str(refused.value)


def test_a_store_that_does_not_answer_is_no_bug_of_ours() -> None:
    assert line_and_code(StoreUnreachable("postgresql://h/d: no answer"), "status") == (
        "postgresql://h/d: no answer",
        3,
    )
    assert line_and_code(OSError("short write: 1 of 2 bytes"), "ship") == ("short write: 1 of 2 bytes", 3)


def test_an_error_of_the_stores_own_kind_is_a_refusal_of_the_landing(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentialsError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("Unable to locate credentials")

    landing = RemoteLanding("memory://landing")
    for method in ("pipe_file", "cat_file", "info"):
        monkeypatch.setattr(landing._filesystem, method, refuse, raising=False)
    for ask in (lambda: landing.put("a", b""), lambda: landing.get("a"), lambda: landing.size_and_age_s("a")):
        with pytest.raises(LandingRefused, match=r"memory://landing: Unable to locate credentials"):
            ask()
