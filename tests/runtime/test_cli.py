"""The command line: one owner a verb, one line a failure, an exit code that says which kind."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import pytest
import typer

from tests.conftest import Command
from trajlake.runtime import cli
from trajlake.runtime.cli_errors import UserError, line_and_code, one_line
from trajlake.schemas.errors import InvalidId

GROUP = cli.COMMANDS_GROUP


def ship(root: Annotated[str, typer.Argument()], fail: str = "", code: int = 0) -> int:
    """Ship what is sealed.

    A second paragraph of help.
    """
    failures: dict[str, Exception] = {
        "user": UserError("x.json:3: not JSON; mend it"),
        "full": UserError("no room", exit_code=3),
        "schema": InvalidId("tenant 'a b': outside its grammar"),
        "extra": ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"),
        "bug": KeyError("lsn"),
        "lines": UserError("one\ntwo\x1b[2J"),
        "absent": FileNotFoundError(2, "No such file or directory", "a.seg"),
        "disk": OSError(28, "No space left on device", "b.seg"),
        "interrupt": typer.Abort(),
    }
    if fail:
        raise failures[fail]
    print(root)
    return code


nested = typer.Typer()


@nested.command("ls")
def nested_ls() -> None:
    """List."""
    print("listed")


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """A table of verbs in a module of its own, installed as the only package's."""
    table = {
        "ship": (f"{__name__}:ship", "ship what is sealed"),
        "journal": ("", "look into segments"),
        "journal put": (f"{__name__}:ship", "a verb of a group"),
        "cas": (f"{__name__}:nested", "a group in one file"),
        "broken": ("trajlake.runtime.no_such_module:f", "cannot be imported"),
    }
    module = types.ModuleType("verbs_of_a_test")
    module.__dict__["VERBS"] = table
    monkeypatch.setitem(sys.modules, "verbs_of_a_test", module)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, sys.modules[ship.__module__]))
    point = EntryPoint("t", "verbs_of_a_test:VERBS", GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [point])
    return table


@pytest.mark.usefixtures("verbs")
class TestVerbs:
    def test_the_help_lists_verbs_with_their_summaries(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["--help"]) == 0
        out = capsys.readouterr().out
        assert "ship what is sealed" in out
        assert "look into segments" in out
        assert "a verb of a group" not in out

    def test_a_verb_runs_and_its_number_is_the_exit_code(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["ship", "here", "--code", "1"]) == 1
        assert capsys.readouterr().out == "here\n"

    def test_the_docstring_is_the_help_of_a_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["ship", "--help"]) == 0
        assert "A second paragraph of help." in capsys.readouterr().out

    def test_a_name_of_two_words_is_a_verb_of_a_group(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["journal", "put", "there"]) == 0
        assert cli.main(["cas", "ls"]) == 0
        assert capsys.readouterr().out == "there\nlisted\n"

    def test_a_group_alone_shows_its_help_and_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["journal"]) == 2
        assert "a verb of a group" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("failure", "code", "line"),
        [
            ("user", 2, "x.json:3: not JSON; mend it"),
            ("full", 3, "no room"),
            ("schema", 2, "tenant 'a b': outside its grammar"),
            ("extra", 3, "'ship' needs the extra 'lake': pip install 'trajlake[lake]'"),
            ("bug", 3, "'ship' failed inside: KeyError: 'lsn'; TRAJLAKE_DEBUG=1 shows the trace, please report it"),
            ("lines", 2, "one two\\x1b[2J"),
            ("absent", 2, "a.seg: No such file or directory"),
            ("disk", 3, "b.seg: No space left on device"),
            ("interrupt", 130, "interrupted"),
        ],
    )
    def test_a_failure_is_one_line_and_a_code(
        self, failure: str, code: int, line: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["ship", "r", "--fail", failure]) == code
        caught = capsys.readouterr()
        assert (caught.out, caught.err) == ("", f"trajlake: {line}\n")

    def test_the_name_of_a_nested_verb_stands_whole_in_its_failure(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["journal", "put", "r", "--fail", "extra"]) == 3
        assert capsys.readouterr().err.startswith("trajlake: 'journal put' needs the extra 'lake'")

    def test_debug_shows_the_trace_before_the_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
        assert cli.main(["ship", "r", "--fail", "bug"]) == 3
        assert "Traceback" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            (["shup"], "Did you mean 'ship'?; see 'trajlake --help'"),
            (["ship"], "Missing argument 'root'; see 'trajlake ship --help'"),
            (["ship", "r", "--cod", "x"], "see 'trajlake ship --help'"),
            (["ship", "r", "--code", "x"], "Invalid value 'x' for '--code'"),
            (["journal", "put"], "see 'trajlake journal put --help'"),
        ],
    )
    def test_a_wrong_word_gets_one_line_that_says_where_help_is(
        self, arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(arguments) == 2
        caught = capsys.readouterr()
        assert caught.out == ""
        assert caught.err.startswith("trajlake: ")
        assert part in caught.err
        assert caught.err.count("\n") == 1

    def test_a_verb_that_cannot_be_imported_is_a_bug_in_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["broken"]) == 3
        assert capsys.readouterr().err.startswith("trajlake: 'broken' failed inside: ModuleNotFoundError")


def test_a_verb_registered_twice_is_refused_at_start(
    verbs: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = types.ModuleType("other_verbs")
    other.__dict__["VERBS"] = {"ship": ("x:y", "another ship")}
    monkeypatch.setitem(sys.modules, "other_verbs", other)
    points = [EntryPoint("a", "verbs_of_a_test:VERBS", GROUP), EntryPoint("b", "other_verbs:VERBS", GROUP)]
    monkeypatch.setattr(cli, "entry_points", lambda group: points)
    assert cli.main(["--help"]) == 3
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "'ship' is registered twice, by verbs_of_a_test:VERBS and other_verbs:VERBS" in caught.err


def test_one_entry_point_listed_twice_is_not_two_owners(
    verbs: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [EntryPoint("a", "verbs_of_a_test:VERBS", GROUP)] * 2
    monkeypatch.setattr(cli, "entry_points", lambda group: points)
    assert cli.main(["ship", "here"]) == 0


def test_the_version_is_that_of_the_package(trajlake: Command) -> None:
    done = trajlake("--version")
    assert (done.returncode, done.stdout) == (0, "trajlake 0.1.0\n")


def test_a_reader_that_goes_away_ends_the_verb_quietly(tmp_path: Path) -> None:
    code = (
        "import sys; from trajlake.runtime import cli\n"
        "def flood(verbs, arguments):\n    while True: print('x' * 1000)\n"
        "cli.invoke = flood; sys.exit(cli.main([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_broken_pipe_elsewhere_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(verbs: object, arguments: list[str]) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(cli, "invoke", broken)
    assert cli.main(["ship"]) == 3
    assert capsys.readouterr().err == "trajlake: Broken pipe\n"


def test_an_error_class_with_an_exit_code_of_its_own_keeps_it() -> None:
    class Held(RuntimeError):
        exit_code = 3

    assert line_and_code(Held("writer 00ff is held"), "ship") == ("writer 00ff is held", 3)


def test_control_characters_are_shown_not_sent_to_the_terminal() -> None:
    assert one_line("id 'a\x00b\u202e'\n  next") == "id 'a\\x00b\\u202e' next"
