"""`trajlake crashtest`: a correct agent is clean, and each wrong one is named for its mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime.crashing.judge import KINDS

AGENTS = Path(__file__).parent / "agents"
SEED = 20261130

NAMED = {
    "pays_outside": ("effect-outside-tool", "after: tool pay"),
    "fresh_key": ("fresh-key", "after: tool charge"),
    "carries_global": ("carried-locals", "after: tool look"),
    "read_that_writes": ("read-changes", "1"),
    "local_that_posts": ("local-reaches-out", "1"),
    "asks_the_clock": ("clock-or-chance", "1"),
}
"""Agent -> what is wrong with it, by the name the crash test gives it, and a boundary where it shows."""
MORE = {
    "writes_itself": ("effect-outside-tool", "1"),
    "carries_local": ("carried-locals", "1"),
    "sends_early": ("effect-before-intent", "after: tool charge"),
    "probe_that_denies": ("duplicated-effect", "after: tool ship"),
    "probe_that_hopes": ("lost-effect", "before: tool ship"),
    "locks_itself": ("cannot-resume", "before: model"),
}
ALSO = {
    "pays_outside": {"duplicated-effect"}, "sends_early": {"fresh-key", "lost-effect", "carried-locals"},
    "locks_itself": {"effect-outside-tool"},
}  # fmt: skip
"""What else is wrong with it."""


class Shop(BaseHTTPRequestHandler):
    """Answers every POST with 200."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """The port of a service on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield str(server.server_port)
    server.shutdown()
    server.server_close()


def run(project: Path, *command: str, port: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=AGENTS, capture_output=True, text=True, timeout=900, check=False,
        env=os.environ | {"SHOP_PORT": port, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(project)},
    )  # fmt: skip


def crashtest(project: Path, agent: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Run the verb on one of the agents; return its exit code and report."""
    done = run(project, "trajlake.runtime", "crashtest", f"{agent}:agent", "--seed", str(SEED), "--json", *more)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def check(project: Path, wrong: dict[str, tuple[str, str]], sample: int, shop: str) -> None:
    names = [f"{name}={at}" for name, (_, at) in wrong.items()]
    done = run(project, "tests.runtime.crashtest.wrong_agents", str(sample), *names, port=shop)
    assert done.returncode == 0, done.stderr
    for name, report in json.loads(done.stdout).items():
        found = {one["kind"] for one in report["findings"]}
        kind, _ = wrong[name]
        assert kind in found, (name, report)
        assert found <= {kind, *ALSO.get(name, ())}, (name, report["findings"])


def test_a_correct_agent_is_clean_wherever_it_is_killed(project: Path) -> None:
    code, report = crashtest(project, "careful", "--sample", "4")
    assert report["findings"] == []
    assert (code, report["killed"], report["left_to_a_person"]) == (0, 4, 0), report
    assert report["tools"] == {"charge": 1, "note": 1, "price": 1, "ship": 1, "tell": 1}
    assert len(report["boundaries"]) > 150


@pytest.mark.long
def test_six_wrong_agents_are_named_for_their_mistakes(project: Path, shop: str) -> None:
    check(project, NAMED, 0, shop)


@pytest.mark.long
def test_six_more_wrong_agents_are_named_for_their_mistakes(project: Path, shop: str) -> None:
    check(project, MORE, 0, shop)


@pytest.mark.long
@pytest.mark.parametrize("agent", ["careful", "careful_async"])
def test_correct_agents_are_clean_at_many_boundaries(project: Path, agent: str) -> None:
    code, report = crashtest(project, agent, "--sample", "20")
    assert (code, report["findings"]) == (0, []), report


@pytest.mark.soak
@pytest.mark.parametrize("agent", ["careful", "careful_async"])
def test_correct_agents_are_clean_at_every_boundary(project: Path, agent: str) -> None:
    code, report = crashtest(project, agent)
    assert (code, report["findings"], report["out_of_time"]) == (0, [], False), report


@pytest.mark.soak
def test_wrong_agents_are_named_wherever_they_are_killed(project: Path, shop: str) -> None:
    check(project, NAMED | MORE, 30, shop)


def test_the_page_names_every_finding_and_each_has_an_agent(project: Path) -> None:
    page = (project / "runtime" / "README.md").read_text()
    section = page.partition("## Crash test of your own agent")[2].partition("\n## ")[0]
    rows = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert rows == list(KINDS)
    assert {kind for kind, _ in (NAMED | MORE).values()} == set(KINDS)
    assert all((AGENTS / f"{name}.py").exists() for name in NAMED | MORE)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere:agent"], 2, "No module named 'nowhere'"),
        (["careful:agent", "--task", "go"], 2, "a text needs quotes of its own"),
        pytest.param(["careful"], 2, "expected module:name", marks=pytest.mark.long),
        pytest.param(["careful:agent", "--files", "nowhere"], 2, "no such folder", marks=pytest.mark.long),
        pytest.param(["careful:agent", "--at", "nothing"], 2, "boundaries, such as", marks=pytest.mark.long),
        pytest.param(["careful:agent", "--options", '{"x": 1}'], 3, "no option is named x", marks=pytest.mark.long),
    ],
)
def test_bad_input_is_one_line(project: Path, arguments: list[str], code: int, says: str) -> None:
    done = run(project, "trajlake.runtime", "crashtest", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
