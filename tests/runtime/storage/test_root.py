"""The root: what opening touches, who may claim a writer, and what it says when it cannot."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import Env, write_atomically
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import RootError, WriterLocked
from trajlake.runtime.wal.reader import iter_events
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions

PROJECT = Path(__file__).parents[3]


def test_opening_makes_the_root_file_and_nothing_else(tmp_path: Path) -> None:
    root = Root.open(tmp_path / "deep" / "journal")
    assert os.listdir(root.path) == ["root.json"]
    assert stat.S_IMODE(os.stat(f"{root.path}/root.json").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(root.path).st_mode) == 0o700
    assert Root.open(root.path).facts == root.facts


def test_opening_an_existing_root_changes_nothing_on_disk() -> None:
    env = FaultyEnv()
    Root.open("/journal", env)
    calls = env.calls
    Root.open("/journal", env).claim_writer  # noqa: B018 - only opened, never claimed
    Root.open("/journal", env, create=False)
    assert env.calls == calls


def test_opening_for_reading_where_no_root_is_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RootError, match=r"no journal here \(root.json is missing\)") as caught:
        Root.open(tmp_path, create=False)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_root_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RootError, match="cannot open the journal"):
        Root.open(tmp_path / "file" / "journal")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format":1}', b'{"format":"x","root_id":"","created_at":0}'])
def test_a_root_file_that_is_none_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "root.json").write_bytes(text)
    with pytest.raises(RootError, match=r"root\.json: not a journal's description"):
        Root.open(tmp_path)


def test_a_root_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "root.json").write_text('{"format":2,"root_id":"00","created_at":0}')
    with pytest.raises(RootError, match="journal format 2, this trajlake knows 1"):
        Root.open(tmp_path)


def test_two_processes_that_create_at_once_agree_on_one_root(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(Root.open(tmp_path / "journal").facts.root_id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert os.listdir(tmp_path / "journal") == ["root.json"]


def test_store_urls_are_kept_for_the_next_process(tmp_path: Path) -> None:
    Root.open(tmp_path, stores={"landing": "file:///landing", "lease": "postgres://db"})
    assert Root.open(tmp_path).facts.stores == {"landing": "file:///landing", "lease": "postgres://db"}
    Root.open(tmp_path, stores={"landing": "s3://bucket"})
    assert Root.open(tmp_path).facts.stores == {"landing": "s3://bucket", "lease": "postgres://db"}


def test_a_created_root_survives_a_power_loss_at_every_moment_after_open_returned() -> None:
    env = FaultyEnv()
    root = Root.open("/a/b/journal", env)
    for seed in (None, 1, 2, 3):
        assert Root.open("/a/b/journal", env.crash_image(seed), create=False).facts == root.facts


def test_a_power_loss_while_the_root_is_created_leaves_a_root_or_none() -> None:
    env = FaultyEnv()
    images: list[FaultyEnv] = []
    env.before = lambda _operation, _path: images.extend(env.crash_image(seed) for seed in (None, 1, 2, 3, 4))
    Root.open("/journal", env)
    assert len(images) > 10
    for image in images:
        Root.open("/journal", image)


def test_a_writer_that_a_live_process_holds_is_not_given_twice(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    with root.claim_writer() as first, root.claim_writer() as second:
        assert first.writer_id != second.writer_id
        assert root.is_alive(first.writer_id)
        with pytest.raises(WriterLocked, match="live process"):
            root.claim(first.writer_id, WriterOptions())
        first.append([event_of("t", 0)], info_of("t")).wait()
        second.append([event_of("t", 1)], info_of("t")).wait()
    assert not root.is_alive(first.writer_id)


class OvertakenEnv(Env):
    """Just before this process locks the first writer folder it made, another process claims a writer."""

    def __init__(self) -> None:
        super().__init__()
        self.overtaking: Callable[[], object] | None = None

    def flock(self, fd: int, *, exclusive: bool, wait: bool = False) -> bool:
        overtaking, self.overtaking = self.overtaking, None
        if overtaking is not None:
            overtaking()
        return super().flock(fd, exclusive=exclusive, wait=wait)


def test_a_folder_that_another_process_locks_first_is_left_to_it(tmp_path: Path) -> None:
    env = OvertakenEnv()
    others: list[Writer] = []
    env.overtaking = lambda: others.append(Root.open(tmp_path).claim_writer())
    with Root.open(tmp_path, env).claim_writer() as writer, others[0] as other:
        assert writer.writer_id != other.writer_id
        assert Root.open(tmp_path).writers() == sorted([writer.writer_id, other.writer_id])


def test_processes_that_start_at_once_get_a_writer_each(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.support.events import event_of, info_of; from trajlake.runtime.root import Root\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "w = Root.open(sys.argv[1]).claim_writer()\n"
        "w.append([event_of('t', 0)], info_of('t')).wait()\n"
        "print(w.writer_id, flush=True); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [
        subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [one.stdout.readline() for one in running if one.stdout] == ["ready\n"] * 6
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    claimed = [one.stdout.readline().strip() for one in running if one.stdout]
    for one in running:
        one.communicate("end\n", timeout=60)
    assert sorted(claimed) == Root.open(tmp_path).writers()
    assert len(set(claimed)) == 6


def test_a_writer_of_a_dead_process_is_taken_over_with_its_lsns(tmp_path: Path) -> None:
    script = (
        "import os, sys; from tests.support.events import event_of, info_of; from trajlake.runtime.root import Root\n"
        "w = Root.open(sys.argv[1]).claim_writer()\n"
        "for n in range(5): w.append([event_of('t', n)], info_of('t')).wait()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, cwd=PROJECT, timeout=30)
    root = Root.open(tmp_path)
    [writer_id] = root.writers()
    assert not root.is_alive(writer_id)
    with root.claim_writer() as writer:
        assert writer.writer_id == writer_id
        assert writer.next_lsn == 5
        assert any("copied" in line for line in writer.recovery_reports)
        writer.append([event_of("t", 5)], info_of("t")).wait()
    assert [event.sequence_number for event in iter_events(root.env, writer.folder)] == list(range(6))


def test_a_damaged_writer_is_left_alone_and_another_is_claimed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Root.open(tmp_path)
    with root.claim_writer() as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
    segment = Path(f"{writer.folder}/{0:020d}.seg")
    damaged = segment.read_bytes()[:100]
    segment.write_bytes(damaged)
    with root.claim_writer() as other:
        assert other.writer_id != writer.writer_id
    assert segment.read_bytes() == damaged
    assert "shorter than a segment header" in caplog.text


def test_what_a_writer_acknowledged_survives_though_who_made_its_folders_died_before_syncing_them() -> None:
    env = FaultyEnv()
    for folder in ("/journal", "/journal/writers"):
        env.mkdir(folder)
    write_root_file_without_sync(env)
    with Root.open("/journal", env).claim_writer() as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
        image = env.crash_image(None)
    assert len(list(iter_events(image, writer.folder))) == 1


def write_root_file_without_sync(env: FaultyEnv) -> None:
    other = FaultyEnv()
    Root.open("/journal", other)
    fd = env.open("/journal/root.json", write=True, create=True)
    env.pwrite(fd, bytes(other.file("/journal/root.json").data), 0)
    env.close(fd)


def test_a_file_replaced_atomically_is_the_old_or_the_new_one_at_every_power_loss() -> None:
    env = FaultyEnv()
    Root.open("/journal", env)
    write_atomically(env, "/journal/f", b"old" * 500)
    images: list[FaultyEnv] = []
    env.before = lambda _operation, _path: images.extend(env.crash_image(seed) for seed in range(6))
    write_atomically(env, "/journal/f", b"new" * 700)
    for image in images:
        assert bytes(image.file("/journal/f").data) in (b"old" * 500, b"new" * 700)
    assert bytes(env.crash_image(None).file("/journal/f").data) == b"new" * 700
