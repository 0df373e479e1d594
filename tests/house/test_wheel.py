"""The wheel holds exactly the tree: sub-packages are listed by hand, so a forgotten one must be found here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tidy import tree_files

PACKAGES = ("schemas", "runtime", "ingest", "pipelines", "sql")
"""Pages (`*.md`) are for readers of the repository and may travel or not; `runtime/FORMAT.md` must."""


@pytest.fixture(scope="module")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, without the network: setuptools comes from the lock."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tree"
    for path in tree_files(project):
        relative = path.relative_to(project)
        if relative.parts[0] in PACKAGES or len(relative.parts) == 1:
            (copy / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy / relative)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w"]
    subprocess.run([*command, str(folder), str(copy)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return zipfile.ZipFile(next(folder.glob("trajlake-*.whl")))


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel: zipfile.ZipFile, project: Path) -> None:
    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith(".md")}
    in_tree = {
        f"trajlake/{relative}"
        for path in tree_files(project)
        if (relative := path.relative_to(project)).parts[0] in PACKAGES and path.suffix != ".md"
    }
    assert in_wheel == in_tree
    assert "trajlake/runtime/FORMAT.md" in wheel.namelist()


def test_every_package_is_marked_as_typed(wheel: zipfile.ZipFile) -> None:
    assert {f"trajlake/{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_the_wheel_names_its_licence_its_command_and_its_verb_tables(wheel: zipfile.ZipFile) -> None:
    info = "trajlake-0.1.0.dist-info"
    points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "trajlake = trajlake.runtime.cli:main" in points
    assert "[trajlake.commands]" in points
    assert "License-Expression: Apache-2.0" in wheel.read(f"{info}/METADATA").decode()
