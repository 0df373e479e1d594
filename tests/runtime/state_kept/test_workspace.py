"""Workspace snapshots: what is found, what is saved, and that a restore gives back exactly that."""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from trajlake.runtime.blob_store import BlobStore
from trajlake.runtime.checkpoints.workspace import CLOCK_GRANULARITY_S, Workspace
from trajlake.runtime.checkpoints.workspace_restore import restore
from trajlake.runtime.checkpoints.workspace_tree import (
    Folder,
    WorkspaceError,
    changes_between,
    decoded,
    encoded,
    objects_of,
    read_tree,
    with_changes,
)
from trajlake.runtime.env import REAL_ENV


class CountingStore(BlobStore):
    """A blob store that notes what is put and read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(REAL_ENV, str(folder))
        self.put_bytes = 0
        self.read: list[str] = []

    def put(self, tenant: str, data: bytes) -> str:
        self.put_bytes += len(data)
        return super().put(tenant, data)

    def get(self, tenant: str, sha256: str) -> bytes:
        self.read.append(sha256)
        return super().get(tenant, sha256)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "blobs")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def get_of(store: BlobStore):  # type: ignore[no-untyped-def]
    return lambda sha256: store.get("default", sha256)


def fill(folder: Path) -> None:
    """Everything a workspace can hold."""
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "closed").mkdir(mode=0o700)
    (folder / "src" / "a.py").write_bytes(b"print(1)\n")
    (folder / "src" / "deep" / "b").write_bytes(bytes(range(256)) * 40)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0o400)
    (folder / "nothing").write_bytes(b"")
    (folder / "100%.txt").write_text("per cent")
    (folder / "grüße.txt").write_text("ü")
    os.symlink("src/a.py", folder / "link")
    os.symlink("nowhere/at all", folder / "broken")
    with open(os.fsencode(folder) + b"/\xff\xfe raw", "wb") as raw:
        raw.write(b"no utf-8")


def listing(folder: Path) -> dict[str, object]:
    """Every path of a folder with its kind, mode and bytes: an independent reading."""
    found: dict[str, object] = {}
    for at, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(at, name)
            facts = os.lstat(path)
            held: object = None
            if os.path.islink(path):
                held = os.readlink(path)
            elif os.path.isfile(path):
                held = Path(path).read_bytes()
            mode = None if os.path.islink(path) else facts.st_mode & 0o7777
            found[os.path.relpath(path, folder)] = (facts.st_mode & 0o170000, mode, held)
    return found


def test_a_restore_in_an_empty_place_equals_the_workspace_byte_for_byte(
    work: Path, tmp_path: Path, store: CountingStore
) -> None:
    fill(work)
    workspace = Workspace(REAL_ENV, str(work))
    tree = workspace.look()
    workspace.save(tree, store, "default")
    other = tmp_path / "made" / "anew"
    found = restore(Workspace(REAL_ENV, str(other)), read_tree(tree.sha256, get_of(store)), get_of(store))
    assert found.sha256 == tree.sha256
    assert listing(other) == listing(work)


def test_a_restore_over_a_changed_folder_writes_what_differs_and_removes_what_is_too_much(
    work: Path, store: CountingStore
) -> None:
    fill(work)
    workspace = Workspace(REAL_ENV, str(work))
    tree = workspace.look()
    workspace.save(tree, store, "default")
    before = listing(work)
    (work / "src" / "a.py").write_text("print(2)\n")
    (work / "run.sh").chmod(0o644)
    (work / "nothing").unlink()
    (work / "nothing").mkdir()
    (work / "nothing" / "new").write_text("new")
    (work / "empty").rmdir()
    (work / "empty").write_text("a file where a folder was")
    (work / "link").unlink()
    os.symlink("elsewhere", work / "link")
    (work / "src" / "deep" / "more").mkdir()
    inode = (work / "src" / "deep" / "b").stat().st_ino
    store.read.clear()
    restore(workspace, read_tree(tree.sha256, get_of(store)), get_of(store))
    assert listing(work) == before
    assert (work / "src" / "deep" / "b").stat().st_ino == inode, "what did not differ was left alone"


def test_recorded_changes_applied_to_an_older_tree_give_the_newer_one(work: Path, store: CountingStore) -> None:
    fill(work)
    workspace = Workspace(REAL_ENV, str(work))
    before = workspace.look()
    (work / "src" / "a.py").write_text("print(3)\n")
    (work / "new" / "below").mkdir(parents=True)
    (work / "new" / "below" / "f").write_text("f")
    (work / "empty").chmod(0o500)
    (work / "run.sh").unlink()
    (work / "broken").unlink()
    (work / "broken").write_text("now a file")
    (work / "src" / "deep" / "b").unlink()
    (work / "src" / "deep").rmdir()
    os.symlink("here", work / "src" / "deep")
    after = workspace.look()
    changes = changes_between(before, after)
    sizes = {}
    waiting = [after]
    while waiting:
        for entry in waiting.pop().entries.values():
            if isinstance(entry, Folder):
                waiting.append(entry)
            elif hasattr(entry, "sha256"):
                sizes[entry.sha256] = entry.size_bytes
    assert with_changes(before, changes, sizes.__getitem__).sha256 == after.sha256
    assert changes_between(after, after) == []


def test_a_change_that_keeps_size_and_times_is_found_within_the_clocks_grain(work: Path) -> None:
    (work / "f").write_text("one")
    workspace = Workspace(REAL_ENV, str(work))
    first = workspace.look()
    facts = os.stat(work / "f")
    with open(work / "f", "r+b") as file:
        file.write(b"two")
    os.utime(work / "f", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert workspace.look().sha256 != first.sha256


def test_files_that_did_not_change_are_not_read_again(work: Path) -> None:
    for name in "abc":
        (work / name).write_text(name)
        os.utime(work / name, (1, 1))
    workspace = Workspace(REAL_ENV, str(work))
    workspace.look()
    assert workspace.files_read == 3
    time.sleep(CLOCK_GRANULARITY_S + 0.1)
    workspace.look()
    assert workspace.files_read == 6, "young when they were looked at: read once more"
    (work / "b").write_text("other")
    workspace.look()
    assert workspace.files_read == 7


def test_an_unchanged_workspace_costs_no_byte_and_a_changed_file_its_folders(work: Path, store: CountingStore) -> None:
    for at in range(30):
        (work / f"d{at % 3}").mkdir(exist_ok=True)
        (work / f"d{at % 3}" / f"f{at}").write_bytes(random.Random(at).randbytes(5000))
    workspace = Workspace(REAL_ENV, str(work))
    workspace.save(workspace.look(), store, "default")
    store.put_bytes = 0
    assert workspace.save(workspace.look(), store, "default") == 0
    (work / "d1" / "f1").write_bytes(random.Random(99).randbytes(5000))
    written = workspace.save(workspace.look(), store, "default")
    assert written == store.put_bytes
    assert 5000 < written < 5000 + 2500


def test_what_is_ignored_or_outside_is_neither_saved_nor_removed(work: Path, store: CountingStore) -> None:
    (work / "src").mkdir()
    (work / "src" / "a").write_text("a")
    (work / "build").mkdir()
    (work / "build" / "big").write_text("big")
    (work / "journal").mkdir()
    (work / "journal" / "segment").write_text("frames")
    workspace = Workspace(REAL_ENV, str(work), ignore=("build",), outside=(str(work / "journal"),))
    tree = workspace.look()
    assert list(tree.entries) == ["src"]
    workspace.save(tree, store, "default")
    (work / "src" / "a").write_text("b")
    restore(workspace, tree, get_of(store))
    assert (work / "src" / "a").read_text() == "a"
    assert (work / "build" / "big").read_text() == "big"
    assert (work / "journal" / "segment").read_text() == "frames"


def test_sockets_and_pipes_are_passed_over(work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "f").write_text("f")
    assert list(Workspace(REAL_ENV, str(work)).look().entries) == ["f"]


def test_a_missing_folder_and_one_that_is_a_file_are_named(work: Path) -> None:
    with pytest.raises(WorkspaceError, match="no such folder"):
        Workspace(REAL_ENV, str(work / "none")).look()
    (work / "f").write_text("f")
    with pytest.raises(WorkspaceError, match="no such folder"):
        Workspace(REAL_ENV, str(work / "f")).look()


def test_a_file_that_changes_while_it_is_saved_is_refused(work: Path, store: CountingStore) -> None:
    (work / "f").write_text("one")
    workspace = Workspace(REAL_ENV, str(work))
    tree = workspace.look()
    (work / "f").write_text("two")
    with pytest.raises(WorkspaceError, match="changed while it was saved"):
        workspace.save(tree, store, "default")


def test_names_survive_whatever_bytes_they_have() -> None:
    for name in ("a", "100%", "%41", "\udcff\udc80x", "ü", "a b", "%"):
        assert decoded(encoded(name)) == name
        encoded(name).encode()
    for wrong in ("..", ".", "", "a/b", "%2F", "%2E%2E"):
        with pytest.raises(WorkspaceError):
            decoded(wrong)


def test_objects_of_a_snapshot_are_all_that_a_restore_reads(work: Path, tmp_path: Path, store: CountingStore) -> None:
    fill(work)
    workspace = Workspace(REAL_ENV, str(work))
    tree = workspace.look()
    workspace.save(tree, store, "default")
    needed = objects_of(tree.sha256, get_of(store))
    assert {name for _, name in store.names("default")} == needed
    store.read.clear()
    restore(Workspace(REAL_ENV, str(tmp_path / "x")), read_tree(tree.sha256, get_of(store)), get_of(store))
    assert set(store.read) == needed


def fill_with(folder: Path, files: int, size: int, dice: random.Random) -> None:
    for at in range(files):
        (folder / f"d{at // 100}").mkdir(exist_ok=True)
        (folder / f"d{at // 100}" / f"f{at}").write_bytes(dice.randbytes(size))


def rewrite(work: Path, store: CountingStore, files: int, size: int, turns: int) -> tuple[float, Folder]:
    """Rewrite one file per turn, a snapshot after each; return bytes written per new byte, and the last tree."""
    dice = random.Random(7)
    fill_with(work, files, size, dice)
    workspace = Workspace(REAL_ENV, str(work))
    workspace.save(workspace.look(), store, "default")
    store.put_bytes = 0
    tree = workspace.look()
    for _ in range(turns):
        at = dice.randrange(files)
        (work / f"d{at // 100}" / f"f{at}").write_bytes(dice.randbytes(size))
        tree = workspace.look()
        workspace.save(tree, store, "default")
    return store.put_bytes / (turns * size), tree


def test_rewriting_one_file_a_turn_costs_at_most_half_as_much_again(work: Path, store: CountingStore) -> None:
    factor, _ = rewrite(work, store, files=300, size=100_000, turns=20)
    assert factor <= 1.5


@pytest.mark.long
def test_the_bar_two_thousand_files_and_five_hundred_turns(work: Path, tmp_path: Path, store: CountingStore) -> None:
    factor, tree = rewrite(work, store, files=2000, size=100_000, turns=500)
    assert factor <= 1.5, factor
    store.read.clear()
    other = tmp_path / "other"
    restore(Workspace(REAL_ENV, str(other)), read_tree(tree.sha256, get_of(store)), get_of(store))
    assert store.read[0] == tree.sha256, "a restore begins at one root and follows no chain"
    assert len(set(store.read)) <= 1 + 20 + 2000
    both = [hashlib.sha256(repr(sorted(listing(one).items())).encode()).digest() for one in (work, other)]
    assert both[0] == both[1]
