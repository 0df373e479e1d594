"""Imports point down, and heavy ones live in named files: schemas <- runtime <- ingest <- pipelines."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("schemas", "runtime", "ingest", "pipelines")
"""From the ground up: a layer may import itself and what stands before it."""
OUTSIDE_WORLD = {"time", "random", "secrets", "uuid", "socket", "tempfile", "shutil", "io"}
"""Modules that reach the disk, the clock or chance; `runtime/env.py` is the one door to them."""
OS_PURE = {"path", "fspath", "PathLike", "sep", "strerror"}
"""What of `os` only works on texts; `os.path.exists` and its like are found by their own names."""
OS_PATH_ASKS = {"exists", "isfile", "isdir", "getsize", "getmtime", "realpath", "lexists", "islink"}
OUTSIDE_WORLD_DOORS = (
    "env.py", "settings.py", "cli", "commands/", "std_streams.py", "__main__", "models/", "pytest_plugin.py",
    "replaying/intercept.py", "crashing/",
)  # fmt: skip
"""Paths under `runtime/`, by prefix: the door itself, the command line and its streams, the adapters that speak to a
network, the pytest plugin, what replaces clock and chance for harness code, and the crash test, which forks and kills
processes."""
EXTRA_IMPORTS = {"cli": {"typer", "rich"}, "commands/": {"typer", "rich"}, "pytest_plugin.py": {"pytest"}}
"""Beginning of a path under its layer -> what it may import besides."""
RECIPES = Path("runtime/recipes")
"""What they are recipes for is imported inside their functions: nobody else needs it."""
HEAVY = {
    "apache_beam", "pyarrow", "polars", "duckdb", "deltalake", "fsspec", "s3fs", "psycopg", "zstandard", "numpy",
    "marimo", "botocore", "aiobotocore",
}  # fmt: skip


def imports(path: Path, *, module_level_only: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, full module name) of every import of a file; relative ones are made absolute."""
    package = ("trajlake", *path.parent.parts)
    tree = ast.parse((PROJECT / path).read_text())
    for node in module_level(tree) if module_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*prefix, *([node.module] if node.module else [])))
            yield node.lineno, module
            # `from trajlake import runtime` names the layer only in the alias.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run on import; what stands under TYPE_CHECKING does not."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


PROJECT = Path(__file__).resolve().parents[2]


def sources(*folders: str) -> list[Path]:
    found = sorted(path.relative_to(PROJECT) for folder in folders for path in (PROJECT / folder).rglob("*.py"))
    assert found, folders
    return found


def top(module: str) -> str:
    return module.partition(".")[0]


def is_wiring(path: Path) -> bool:
    return path.parts[0] == "pipelines" and path.name.startswith("beam_")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_itself_and_the_layers_below(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    assert [
        f"{path}:{line}: {module}"
        for path in sources(layer)
        for line, module in imports(path)
        if module.startswith("trajlake.") and module.split(".")[1] in above
    ] == []


@pytest.mark.parametrize("layer", ["schemas", "runtime"])
def test_schemas_and_runtime_import_the_standard_library_and_msgspec_only(layer: str) -> None:
    allowed = sys.stdlib_module_names | {"trajlake", "msgspec"}
    assert [
        f"{path}:{line}: {module}"
        for path in sources(layer)
        for line, module in imports(path, module_level_only=RECIPES in path.parents)
        if top(module) not in allowed
        and not any(
            str(path.relative_to(layer)).startswith(name) and top(module) in more
            for name, more in EXTRA_IMPORTS.items()
        )
    ] == []


def test_the_folders_are_imported_through_the_namespace_only() -> None:
    # From the project's root they are importable under their bare names too, as second copies.
    assert [
        f"{path}:{line}: {module}"
        for path in sources(*LAYERS, "tests")
        for line, module in imports(path)
        if top(module) in LAYERS
    ] == []


def test_the_runtime_meets_disk_clock_and_chance_through_env_only() -> None:
    paths = [
        path for path in sources("runtime") if not str(path.relative_to("runtime")).startswith(OUTSIDE_WORLD_DOORS)
    ]
    assert paths
    assert [
        f"{path}:{line}: {module}" for path in paths for line, module in imports(path) if module in OUTSIDE_WORLD
    ] == []
    assert [f"{path}:{line}" for path in paths for line in system_calls(path)] == []


def system_calls(path: Path) -> list[str]:
    """Return `line: name` wherever a file calls the builtin `open` or reaches the system through `os`."""
    found = []
    for node in ast.walk(ast.parse((PROJECT / path).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            found.append(f"{node.lineno}: open")
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if (text.startswith("os.") and text.split(".")[1] not in OS_PURE) or (
                text.startswith("os.path.") and node.attr in OS_PATH_ASKS
            ):
                found.append(f"{node.lineno}: {text}")
    return found


def test_command_files_import_heavy_packages_inside_functions_only() -> None:
    commands = [
        path
        for path in sources(*LAYERS)
        if path.name.startswith(("cli", "verbs", "__init__")) or path.parts[1] == "commands"
    ]
    assert [
        f"{path}:{line}: {module}"
        for path in commands
        for line, module in imports(path, module_level_only=True)
        if top(module) in HEAVY
    ] == []


def test_beam_is_imported_by_its_wiring_files_only() -> None:
    assert [
        f"{path}:{line}"
        for path in sources(*LAYERS)
        if not is_wiring(path)
        for line, module in imports(path)
        if top(module) == "apache_beam"
    ] == []


def test_the_wiring_files_are_imported_inside_functions_only() -> None:
    assert [
        f"{path}:{line}: {module}"
        for path in sources(*LAYERS)
        if not is_wiring(path)
        for line, module in imports(path, module_level_only=True)
        if module.startswith("trajlake.pipelines.beam_")
    ] == []
