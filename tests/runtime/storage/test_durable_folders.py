"""New names last: whoever stores something durably makes the folders above it durable too, its own or another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_env import FaultyEnv
from trajlake.ingest.landing_store import LocalLanding
from trajlake.ingest.loss_report import LossReport, report_path, write_report
from trajlake.runtime.durable_folders import DurableFolders
from trajlake.runtime.env import Env, read_file
from trajlake.runtime.gateway import Gateway
from trajlake.runtime.root import Root

PROJECT = Path(__file__).parents[3]
SHA = "ab" * 32


def land(env: FaultyEnv) -> str:
    LocalLanding("/lake/landing", env).put(f"blobs/t/ab/{SHA}", b"text")
    return f"/lake/landing/blobs/t/ab/{SHA}"


def land_a_link(env: FaultyEnv) -> str:
    env.close(env.open("/source", write=True, create=True))
    LocalLanding("/lake/landing", env, link=True).put_file("writers/w/0.seg", "/source")
    return "/lake/landing/writers/w/0.seg"


def report(env: FaultyEnv) -> str:
    root = Root.open("/lake", env)
    told = LossReport(
        tenant="t", sha256=SHA, mapping_version=1, format="x", name="n", bytes=1, trajectories={}, records={},
        by_kind={},
    )  # fmt: skip
    write_report(root, told)
    return report_path(root, SHA, 1, "t")


@pytest.mark.parametrize("store", [land, land_a_link, report])
def test_what_is_stored_below_folders_that_a_killed_process_made_survives_a_power_loss(
    store: Callable[[FaultyEnv], str],
) -> None:
    env = FaultyEnv()
    env.mkdir("/lake")
    env.fsync_dir("/")
    killed = ("landing", "landing/blobs", "landing/blobs/t", "landing/blobs/t/ab", "landing/writers",
              "landing/writers/w", "imports", f"imports/{SHA}")  # fmt: skip
    for folder in killed:
        env.mkdir(f"/lake/{folder}")
    path = store(env)
    assert read_file(env.crash_image(None), path) == read_file(env, path)


class NotedEnv(Env):
    """The real disk; notes which folders were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def fsync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_dir(path)


def test_a_gateway_makes_the_folder_of_its_owners_durable_whoever_made_it(tmp_path: Path) -> None:
    (tmp_path / "gateway.db.owners").mkdir()
    env = NotedEnv()
    Gateway(str(tmp_path / "gateway.db"), env=env)
    assert str(tmp_path) in env.synced


def test_a_folder_is_synced_once_and_those_above_it_not_again_for_its_neighbours() -> None:
    env = FaultyEnv()
    env.mkdir("/top")
    synced: list[str] = []
    real = env.fsync_dir
    env.fsync_dir = lambda path: (synced.append(path), real(path))[1]  # type: ignore[method-assign]
    folders = DurableFolders(env, "/top")
    for name in ("a/b/one", "a/b/one", "a/b/two"):
        folders.ensure(f"/top/{name}")
    assert synced[-1] == "/top/a/b"
    assert synced.count("/top") == 2, "made, and made sure of"
    folders.forget("/top/a/b/one")
    before = len(synced)
    folders.ensure("/top/a/b/one")
    assert synced[before:] == ["/top/a/b"]


def test_nothing_makes_folders_without_making_their_names_durable() -> None:
    """`make_folder` is for `Root.open`, whose writer makes sure later, and for `DurableFolders`."""
    allowed = {"runtime/env.py", "runtime/durable_folders.py", "runtime/root.py"}
    using = {
        str(path.relative_to(PROJECT))
        for folder in ("runtime", "ingest", "pipelines")
        for path in (PROJECT / folder).rglob("*.py")
        if "make_folder" in path.read_text().replace("_make_folders", "")
    }
    assert using <= allowed
