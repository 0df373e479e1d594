"""Set-up says in one line what a machine lacks, and does nothing when nothing is to do."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement


@pytest.fixture(scope="module")
def script(project: Path) -> Path:
    return project / ".ci" / "set_up.py"


def test_a_python_without_venv_gets_one_line_that_names_the_package(script: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    code = f"import runpy, sys; sys.modules['ensurepip'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert f"python{version}-venv" in done.stderr


def test_a_python_that_is_too_old_gets_one_line_that_says_how_to_name_another(script: Path) -> None:
    refuse = runpy.run_path(str(script))["refuse"]
    line = refuse((3, 10), "/usr/bin/python3")
    assert "\n" not in line
    assert "3.10" in line
    assert "make PYTHON=" in line
    assert refuse((3, 11), sys.executable) is None


def test_the_script_parses_on_the_pythons_it_refuses(script: Path) -> None:
    # ast's oldest grammar is 3.4 and later; f-strings, walrus and the like would be refused by it.
    compile_check = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 4))"
    done = subprocess.run(
        [sys.executable, "-c", compile_check, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_help_lists_every_target_and_needs_no_set_up(project: Path) -> None:
    done = subprocess.run(["make", "-C", str(project), "help"], capture_output=True, text=True, check=True)
    for target in ("demo", "test", "check", "test-all", "soak", "bench", "clean"):
        assert f"make {target} " in done.stdout


def test_the_lock_satisfies_what_pyproject_asks_for(project: Path) -> None:
    asked = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    lines = [*asked["dependencies"], *(line for extra in asked["optional-dependencies"].values() for line in extra)]
    wanted = [Requirement(line) for line in lines if not line.startswith("trajlake")]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (project / "requirements.lock").read_text(), re.MULTILINE))
    assert len(wanted) > 15
    assert [str(need) for need in wanted if locked.get(need.name) not in need.specifier] == [], "run 'make lock'"


def test_the_environment_that_runs_the_tests_is_the_locked_one(project: Path) -> None:
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (project / "requirements.lock").read_text(), re.MULTILINE))
    names = ("msgspec", "typer", "pyarrow", "polars", "duckdb", "deltalake", "apache-beam", "pytest")
    assert {name: version(name) for name in names} == {name: locked[name] for name in names}
