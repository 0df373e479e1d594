"""What every test shares: where the tree is, real input, and the parts of the machine that some tests need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

PROJECT = Path(__file__).resolve().parent.parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SETTINGS_OF_THE_SHELL = ("CONFIG", "JOURNAL", "LANDING", "LAKE", "TENANT", "DEBUG")

# What a developer has set for their own work must not steer a test, or a test their data.
for _name in SETTINGS_OF_THE_SHELL:
    os.environ.pop(f"TRAJLAKE_{_name}", None)

# A shell that starts the tests in the background hands SIGINT over ignored, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, so that a red run can be run again; TRAJLAKE_RANDOM=1 looks for new ones.
hypothesis.settings.register_profile(
    "trajlake",
    derandomize=os.environ.get("TRAJLAKE_RANDOM") != "1",
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("trajlake")


def under_ci() -> bool:
    """Under `.ci/run` a missing browser or JDK is a failure, elsewhere a skip by name."""
    return os.environ.get("TRAJLAKE_CI") == "1"


def absent(what: str) -> None:
    """Skip the running test, or fail it under `.ci/run`, because the machine lacks `what`."""
    if under_ci():
        pytest.fail(f"{what}, which .ci/run should have installed", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the tree under test."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recorded sessions beside the project; tests that want them are skipped on a machine without."""
    path = PROJECT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no ../shared/data beside the project: real recorded sessions are not part of it")
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        absent("no Chromium on this machine")
    return str(found)


@pytest.fixture(scope="session")
def java() -> str:
    """Path of a Java runtime."""
    found = shutil.which("java")
    if found is None:
        absent("no Java runtime on this machine")
    return str(found)


class Command:
    """Runs `trajlake` as a user does: a process of its own, no stdin, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, *arguments: str, env: dict[str, str] | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRAJLAKE_")}
        return subprocess.run(
            [sys.executable, "-m", "trajlake.runtime", *arguments],
            cwd=self.folder,
            env=inherited | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


@pytest.fixture
def trajlake(tmp_path: Path) -> Command:
    """The command line, run in an empty folder: `trajlake("config", "--json").stdout`."""
    return Command(tmp_path)
