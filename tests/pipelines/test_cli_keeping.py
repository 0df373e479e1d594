"""The verbs that keep and delete, from the command line: output, JSON, exit codes, errors of one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.forgetting import SECRET, A, a_lake, digest_of, picture
from trajlake.pipelines.forgetting.erase_places import Places, check_places
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.wal.journal_errors import RootError

pytestmark = pytest.mark.long
"""Whole commands in processes of their own: what they call is tested in `make test` as functions."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return a_lake(tmp_path)


def test_a_hold_an_erasure_and_its_completion(trajlake: Any, lake: Path) -> None:
    place = ["hold", "place", "a2", "--tenant", "t", "--because", "case 12", "--lake", "lake", "--json"]
    held = json.loads(trajlake(*place).stdout)
    assert held["status"] == "confirmed"
    ask = ["erase", "--subject", "ada", "--tenant", "t", "--lake", "lake"]
    tried = trajlake(*ask, "--dry-run")
    assert (tried.returncode, "held: a2 of tenant t" in tried.stderr) == (2, True)
    refused = trajlake(*ask, "--because", "letter 7", "--landing", "landing")
    assert (refused.returncode, "refused" in refused.stdout) == (2, True)
    assert "lifted" in trajlake("hold", "lift", held["hold_id"], "--because", "settled", "--lake", "lake").stdout
    pending = trajlake(*ask, "--because", "letter 8", "--landing", "landing")
    assert pending.returncode == 1
    assert f"still there: writer {A.hex()}: its root was not named" in pending.stderr
    done = trajlake("erase", "--pending", "--landing", "landing", "--gone", A.hex(), "--lake", "lake", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "complete")
    assert [line.split()[1] for line in trajlake("hold", "list", "--lake", "lake").stdout.splitlines()] == ["lifted"]
    shown = trajlake("sql", "--lake", "lake", "select payload from events where trajectory_id = 'a1'")
    assert SECRET not in shown.stdout
    assert trajlake("verify", "--lake", "lake").returncode == 0


def test_maintain_pin_and_unpin(trajlake: Any, lake: Path) -> None:
    pinned = trajlake("pin", "keep", "--snapshot", "2", "--lake", "lake")
    assert pinned.stdout.startswith("keep  snapshot 2  epoch 0")
    said = json.loads(trajlake("maintain", "--keep", "0s", "--lake", "lake", "--dry-run", "--json").stdout)
    assert (said["outcome"], said["vacuum"]["expired"]) == ("dry_run", [0, 1, 2])
    assert trajlake("maintain", "--keep", "0s", "--lake", "lake").stdout.startswith("outcome            committed")
    assert trajlake("pin", "--lake", "lake").stdout == pinned.stdout
    assert trajlake("unpin", "keep", "--lake", "lake").stdout == "keep: unpinned\n"
    gone = trajlake("unpin", "keep", "--lake", "lake")
    assert (gone.returncode, "none of that name" in gone.stderr) == (3, True)


def test_the_content_store(trajlake: Any, lake: Path, tmp_path: Path) -> None:
    digest = digest_of("ada")
    assert trajlake("cas", "get", digest[:10], "--tenant", "t", "--lake", "lake", "--out", "x").returncode == 0
    assert (tmp_path / "x").read_bytes() == picture("ada")
    again = trajlake("cas", "get", digest, "--tenant", "t", "--lake", "lake", "--out", "x")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    assert trajlake("cas", "get", "ffffff", "--tenant", "t", "--lake", "lake").returncode == 2
    whole = json.loads(trajlake("cas", "verify", "--lake", "lake", "--json").stdout)
    assert (whole["objects"], whole["problems"]) == (3, [])
    (path,) = (lake / "cas").rglob(f"{digest[2:]}.*")
    path.write_bytes(path.read_bytes()[:-1])
    damaged = trajlake("cas", "verify", "--lake", "lake")
    assert (damaged.returncode, "1 problems" in damaged.stdout) == (1, True)
    orphan = path.with_name(f"{hashlib.sha256(b'').hexdigest()[2:]}.1-0011223344556677")
    orphan.write_bytes(b"")
    assert trajlake("cas", "gc", "--lake", "lake").stdout == "1 objects removed, 0 bytes\n"
    assert not orphan.exists()


def test_retention_by_a_policy_file(trajlake: Any, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[[keep]]\nwhat = "blobs"\nmaximum_days = 0\n')
    report = trajlake("retain", "--policy", "p.toml", "--lake", "lake", "--dry-run", "--json")
    assert json.loads(report.stdout)["blobs_expired"] == 3
    assert "blobs          3" in trajlake("retain", "--policy", "p.toml", "--lake", "lake").stdout
    (tmp_path / "p.toml").write_text('[[keep]]\nwhat = "all"\n')
    wrong = trajlake("retain", "--policy", "p.toml", "--lake", "lake")
    assert (wrong.returncode, wrong.stderr) == (
        2, "trajlake: p.toml: [[keep]] number 1: what must be 'blobs' or 'payloads'\n",
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), [
    (["erase", "--lake", "lake"], "give a trajectory, --subject KEY, or --pending"),
    (["erase", "x", "--lake", "lake"], "give --because"),
    (["hold", "place", "--because", "x", "--lake", "lake"], "give a trajectory, --subject KEY, or --whole-tenant"),
    (["maintain", "--keep", "week", "--lake", "lake"], "--keep 'week'"),
    (["maintain", "--lake", "nowhere"], "no lake there"),
    (["retain", "--policy", "p.toml", "--warm", "tier.db", "--lake", "lake"], "--warm tier.db: the warm tier is"),
])  # fmt: skip
def test_wrong_arguments_are_one_line_and_exit_2(trajlake: Any, arguments: list[str], says: str) -> None:
    done = trajlake(*arguments)
    assert (done.returncode, says in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_a_place_that_is_not_there_is_refused_before_anything_is_erased(trajlake: Any, lake: Path) -> None:
    before = sorted(str(path) for path in lake.rglob("*"))
    done = trajlake("erase", "a1", "--tenant", "t", "--because", "x", "--lake", "lake", "--landing", "nothere")
    assert (done.returncode, done.stderr) == (2, "trajlake: --landing nothere: no such folder; check the path\n")
    assert sorted(str(path) for path in lake.rglob("*")) == before
    with pytest.raises(RootError, match="no journal here"):
        check_places(Places(roots=(str(lake),)))
    with pytest.raises(UserError, match=r"--warm tier\.db: the warm tier is a PostgreSQL"):
        check_places(Places(warm=("tier.db",)))
