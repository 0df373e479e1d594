"""`trajlake ship --warm` and `trajlake status --warm` as people call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.ingest.stores.histories import History, info, write
from trajlake.runtime.root import Root

pytestmark = pytest.mark.postgres


def test_ship_warm_then_status_of_the_fleet(trajlake, tmp_path, warm):
    history = History()
    history.start()
    history.say(3)
    write(Root.open(str(tmp_path / "journal")), history.events)
    done = trajlake("ship", "journal", "--warm", warm.url, "--json")
    assert (done.returncode, json.loads(done.stdout)["events"]) == (0, 4), done.stderr
    assert not (tmp_path / "landing").exists()
    done = trajlake("status", "--warm", warm.url, "--json")
    assert done.returncode == 0, done.stderr
    assert [(row["trajectory_id"], row["status"], row["events"]) for row in json.loads(done.stdout)] == [
        ("order-7", "open", 4)
    ]
    assert "order-7" in trajlake("status", "--warm", warm.url).stdout


def test_another_scheme_and_an_unreachable_server_are_one_line_without_the_password(trajlake, tmp_path):
    write(Root.open(str(tmp_path / "journal")), [])
    done = trajlake("ship", "journal", "--warm", "mysql://u:secret@h/db")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "secret" not in done.stderr
    history = History()
    history.start()
    write(Root.open(str(tmp_path / "journal")), history.events)
    done = trajlake("ship", "journal", "--warm", "postgresql://u:secret@127.0.0.1:1/db")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert "secret" not in done.stderr


def test_follow_ships_what_is_written_beside_it_and_stops_when_told(tmp_path, warm):
    root = Root.open(str(tmp_path / "journal"))
    command = [sys.executable, "-m", "trajlake.runtime", "ship", root.path, "--warm", warm.url, "--follow"]
    process = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
    try:
        history, writer = History(), root.claim_writer()
        writer.append([history.start()], info()).wait()
        ends = time.monotonic() + 30
        while not warm.value("select to_regclass('events') is not null") or not warm.rows("select * from events"):
            assert time.monotonic() < ends
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        writer.close()
    finally:
        process.kill()
        process.wait()
