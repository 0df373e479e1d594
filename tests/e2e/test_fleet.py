"""A fleet of workers under SIGKILL and SIGSTOP against shops that fail: every order is charged once.

The shops' own ledgers count. With keys or a probe every order is charged exactly once and finished; with neither,
none is charged twice, and each of those left waits for a person, who looks at the ledger and says what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet_services import SHOPS, open_ledger
from trajlake.runtime import Journal


class Scene:
    """One folder: root, ledgers, and the processes over them."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.project = folder, project
        self.environ = {**os.environ, "FLEET": str(folder), "TRAJLAKE_JOURNAL": str(folder / "root")}

    @contextlib.contextmanager
    def fleet(self, seed: int, orders: int, workers: int, kills: int) -> Iterator[dict[str, Any]]:
        """Run the fleet to its end; the shops stay open inside the block."""
        words = [str(number) for number in (seed, orders, workers, kills)]
        with (self.folder / "errors").open("w") as errors:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.fleet", *words], cwd=self.project, env=self.environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
            try:
                assert driver.stdout is not None
                line = driver.stdout.readline()
                assert line, (self.folder / "errors").read_text()[-4000:]
                yield json.loads(line)
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.communicate()

    def trajlake(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trajlake.runtime", *words]
        return subprocess.run(
            command, cwd=self.project, env=self.environ, capture_output=True, text=True, timeout=240, check=False
        )

    def charges(self, shop: str) -> Counter[str]:
        ledger = open_ledger(self.folder, shop)
        try:
            return Counter(name for (name,) in ledger.execute("select name from charges"))
        finally:
            ledger.close()

    def status(self) -> dict[str, Any]:
        done = self.trajlake("status", "--json")
        assert done.returncode == 0, done.stderr
        return {row["trajectory_id"]: row for row in json.loads(done.stdout)}


@pytest.fixture
def scene(tmp_path: Path, project: Path) -> Scene:
    return Scene(tmp_path, project)


def check(scene: Scene, seed: int, orders: int, workers: int, kills: int) -> None:
    print(f"seed {seed}")
    with scene.fleet(seed, orders, workers, kills) as done:
        print(done)
        assert not done["failures"], (scene.folder / "errors").read_text()[-4000:]
        each = orders // len(SHOPS)
        for shop in ("keys", "probe"):
            charged = scene.charges(shop)
            assert len(charged) == each, "an order is lost"
            assert set(charged.values()) == {1}, "an order was charged twice"
        assert set(scene.charges("neither").values()) <= {1}, "an order was charged twice"
        parked = check_status(scene, orders)
        print(f"{len(parked)} of {each} wait for a person")
        answer(scene, parked)
        recovered = scene.trajlake("recover", "--json")
        assert recovered.returncode == 0, recovered.stdout + recovered.stderr
        assert Counter(scene.charges("neither").values()) == {1: each}
        assert {row["status"] for row in scene.status().values()} == {"completed"}
    verified = scene.trajlake("journal", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def check_status(scene: Scene, orders: int) -> dict[str, Any]:
    """Every order is in the fleet's status: ended, or parked with its one doubt and the verb that answers it."""
    rows = scene.status()
    assert len(rows) == orders
    parked = {name: row for name, row in rows.items() if row["status"] != "completed"}
    text = scene.trajlake("status", "--open").stdout
    for name, row in parked.items():
        assert name.startswith("neither"), row
        assert (row["status"], len(row["doubts"]), row["owner"]) == ("parked", 1, ""), row
        assert name in text
        assert f"doubt {row['doubts'][0]['action_id']} charge_neither" in text
    return parked


def answer(scene: Scene, parked: dict[str, Any]) -> None:
    """Say of each doubt what the ledger shows; the first one by the verb."""
    charged = scene.charges("neither")
    with Journal.open(scene.folder / "root", principal="ops") as journal:
        for place, (name, row) in enumerate(parked.items()):
            action_id = row["doubts"][0]["action_id"]
            if place == 0:
                verdict = "--executed" if charged[name] else "--not-executed"
                done = scene.trajlake("settle", name, action_id, verdict, "--because", "the ledger shows it")
                assert done.returncode == 0, done.stderr
            else:
                journal.settle(name, action_id, executed=bool(charged[name]), because="the ledger shows it")


def test_a_small_fleet_charges_every_order_once(scene: Scene) -> None:
    check(scene, seed=1, orders=24, workers=4, kills=5)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_twelve_workers_charge_three_hundred_orders_once(scene: Scene, seed: int) -> None:
    check(scene, seed, orders=300, workers=12, kills=30)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_fleets_of_many_seeds_charge_every_order_once(scene: Scene, seed: int) -> None:
    check(scene, seed, orders=300, workers=12, kills=60)
