"""A pytest plugin: recorded trajectories as tests. pytest finds files named `*.replay.toml`:

    agent = "shop:agent"        # module:function; default: the one each record names
    journal = "recorded"        # a root beside this file, or: lake = "URL"
    ids = ["order-*"]           # default: all
    cold = true                 # default: false

Each trajectory is one test. A difference fails it and names turn, event and both sides; both are kept whole as JSON
under `.replay/` in pytest's root folder (ini `replay_reports`). A record that cannot be replayed fails too, with its
reason, unless `refused = "skip"`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .replaying.many import Suite, Summary
    from .replaying.report import Report

SUFFIX = ".replay.toml"
KEYS = {"agent", "journal", "lake", "tenant", "journal_object", "cold", "ids", "refused"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that names where reports go."""
    parser.addini("replay_reports", "folder for the reports of trajectories that differ", default=".replay")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect suites of recorded trajectories."""
    if file_path.name.endswith(SUFFIX):
        found: pytest.Collector = ReplayFile.from_parent(parent, path=file_path)
        return found
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the suites showed, and what they do not show."""
    summary: Summary | None = config.stash.get(_SUMMARY, None)
    if summary is not None:
        terminalreporter.section("replay")
        terminalreporter.write_line(summary.text())


class ReplayFile(pytest.File):
    """One `*.replay.toml`."""

    def collect(self) -> Iterator[pytest.Item]:
        from .replaying.sources import open_source

        told = tomllib.loads(self.path.read_text())
        unknown = set(told) - KEYS
        if unknown or ("journal" in told) == ("lake" in told):
            what = f"unknown keys {', '.join(sorted(unknown))}" if unknown else "give journal or lake, one of them"
            raise self.CollectError(f"{self.path}: {what}")
        suite = _suite(self.path, told)
        source = open_source(journal=suite.journal, lake=suite.lake, tenant=suite.tenant)
        patterns = told.get("ids", ["*"])
        ids = [one for one in source.trajectory_ids() if any(fnmatchcase(one, pattern) for pattern in patterns)]
        if not ids:
            raise self.CollectError(f"{self.path}: no recorded trajectory matches {patterns}")
        for trajectory_id in ids:
            item = ReplayItem.from_parent(self, name=trajectory_id)
            item.suite, item.may_skip = suite, told.get("refused") == "skip"
            yield item


class ReplayItem(pytest.Item):
    """One recorded trajectory."""

    suite: Suite
    may_skip: bool

    def runtest(self) -> None:
        from .replaying.many import Summary, check

        report = check(self.suite, self.name)
        self.config.stash.setdefault(_SUMMARY, Summary()).add(report)
        if report.verdict == "refused" and self.may_skip:
            pytest.skip(report.cause)
        if not report.same:
            raise ReplayFailed(report, self._keep(report))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """A difference tells itself; anything else as usual."""
        if isinstance(excinfo.value, ReplayFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"replay of {self.name}"

    def _keep(self, report: Report) -> Path:
        import msgspec

        folder = Path(self.config.rootpath, str(self.config.getini("replay_reports")))
        folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in self.name)[:100]
        path = folder / f"{self.path.name.removesuffix(SUFFIX)}-{safe}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report.as_json()), indent=1))
        return path


class ReplayFailed(Exception):
    """A trajectory is not handled as it was, or cannot be replayed."""

    def __init__(self, report: Report, kept: Path) -> None:
        super().__init__(f"{report.text()}\n  both sides: {kept}")


_SUMMARY: pytest.StashKey[Summary] = pytest.StashKey()


def _suite(path: Path, told: dict[str, Any]) -> Suite:
    from .replaying.many import Suite

    given = {name: told[name] for name in ("agent", "lake", "tenant", "journal_object", "cold") if name in told}
    journal = str(path.parent / told["journal"]) if "journal" in told else None
    return Suite(journal=journal, **given)
