"""The tidy rules find what they name, and the tree has none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import tidy

TOP_LEVEL = {
    "pyproject.toml", "ingest", "pipelines", "schemas", "sql", "notebooks", "runtime", "tests", "README.md",
    "Makefile", ".ci", ".gitignore", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "requirements.lock",
}  # fmt: skip


def write(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(tidy.findings(folder, [path]))


def test_a_file_of_500_lines_passes_and_one_of_501_is_found(tmp_path: Path) -> None:
    assert write(tmp_path, "long.py", "x = 1\n" * 500) == []
    assert len(write(tmp_path, "long.py", "x = 1\n" * 501)) == 1


def test_a_function_of_60_lines_passes_and_one_of_61_is_found(tmp_path: Path) -> None:
    assert write(tmp_path, "f.py", "def f():\n" + "    x = 1\n" * 59) == []
    assert "f has 61 lines" in write(tmp_path, "f.py", "async def f():\n" + "    x = 1\n" * 60)[0]


@pytest.mark.parametrize("name", ["utils.py", "runtime/core/x.py", "helpers.py"])
def test_a_module_named_for_nothing_is_found(tmp_path: Path, name: str) -> None:
    assert "is no concept" in write(tmp_path, name, "")[0]


@pytest.mark.parametrize(
    "text",
    ["/ho" + "me/ann/x", "/work" + "/main", "py" + "pi.org", "--index" + "-url x", "files.python" + "hosted.org"],
)
def test_a_machine_path_or_a_registry_is_found(tmp_path: Path, text: str) -> None:
    assert len(write(tmp_path, "notes.md", f"a\nsee {text}\n")) == 1


def test_without_git_the_same_files_are_found(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_git = tidy.tree_files(project)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tidy.tree_files(project) == with_git


def test_the_tree_is_tidy(project: Path) -> None:
    assert list(tidy.findings(project, tidy.tree_files(project))) == []


def test_the_top_level_holds_the_prescribed_names_only(project: Path) -> None:
    assert {path.relative_to(project).parts[0] for path in tidy.tree_files(project)} <= TOP_LEVEL


def test_the_lock_pins_every_package_by_hash_and_names_no_address(project: Path) -> None:
    text = (project / "requirements.lock").read_text()
    blocks = [block for block in text.replace("\\\n", " ").splitlines() if block and not block.startswith("#")]
    assert len(blocks) > 50
    assert [block for block in blocks if "==" not in block or "--hash=sha256:" not in block] == []
    assert "://" not in text
    assert not {"boto3", "moto"} & {block.partition("==")[0] for block in blocks}
