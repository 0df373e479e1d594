"""Posting mail: what arrives is what was said, in whose name, and wrong input posts nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.mailbox.mail import MailRefused
from trajlake.runtime.mailbox.posting import Postman
from trajlake.schemas.errors import InvalidId


@pytest.fixture
def store(tmp_path):
    return FileMailStore(str(tmp_path))


@pytest.fixture
def postman(store):
    return Postman(store, "default", actor="ada", known_by="os user")


def test_each_method_posts_one_item_of_its_kind(store, postman):
    postman.approve("t", "ask-1", "fine")
    postman.deny("t", "ask-2", arguments_hash="11")
    postman.cancel("t", "enough")
    postman.settle("t", "4.0", executed=True, because="bank", output={"n": 1})
    postman.settle("t", "5.0", executed=False, because="bank")
    postman.deliver("t", "6.0", {"done": True})
    postman.deliver("t", "7.0", error="failed")
    postman.steer("t", "slow down")
    assert [(found.kind, found.subject, found.body) for found in store.waiting("default", "t")] == [
        ("approval", "ask-1", {"decision": "granted", "because": "fine"}),
        ("approval", "ask-2", {"decision": "denied", "because": "", "arguments_hash": "11"}),
        ("cancel", "", {"because": "enough"}),
        ("settle", "4.0", {"verdict": "executed", "because": "bank", "output": {"n": 1}}),
        ("settle", "5.0", {"verdict": "not_executed", "because": "bank"}),
        ("result", "6.0", {"status": "ok", "output": {"done": True}}),
        ("result", "7.0", {"status": "error", "error": "failed"}),
        ("steer", "", {"text": "slow down"}),
    ]
    first = store.waiting("default", "t")[0]
    assert (first.actor, first.actor_known_by) == ("ada", "os user")
    assert abs(first.posted_at - time.time() * 1e6) < 60e6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda postman: postman.settle("t", "4.0", executed=True, because=" "),
        lambda postman: postman.settle("t", "4.0", executed=False, because="x", output=1),
        lambda postman: postman.settle("t", "", executed=True, because="x"),
        lambda postman: postman.approve("t", ""),
        lambda postman: postman.deliver("t", " ", 1),
        lambda postman: postman.steer("t", "\n"),
        lambda postman: postman.cancel("t", mail_id="../../x"),
    ],
)
def test_wrong_input_posts_nothing(store, postman, wrong):
    with pytest.raises(MailRefused):
        wrong(postman)
    assert list(store.trajectories()) == []


@pytest.mark.parametrize("trajectory_id", ["", " ", "x" * 257, "a\nb", "judge/x"])
def test_an_id_no_trajectory_can_have_is_refused(store, postman, trajectory_id):
    with pytest.raises(InvalidId):
        postman.cancel(trajectory_id)


def test_odd_values_arrive_as_they_were(store, postman):
    from trajlake.schemas.values import from_tree

    value = {"$key": b"\x00\xff", "big": 2**70, "odd": "\ud83d", "t": (1, 2)}
    postman.deliver("t", "6.0", value)
    postman.steer("t", "nul \x00 and \ud83d")
    result, steer = store.waiting("default", "t")
    assert from_tree(result.body["output"]) == value
    assert from_tree(steer.body["text"]) == "nul \x00 and \ud83d"


def test_a_repeated_id_is_one_item(store, postman):
    class Still:
        def __getattr__(self, name):
            from trajlake.runtime.env import REAL_ENV

            return (lambda: 7) if name == "now_us" else getattr(REAL_ENV, name)

    again = Postman(store, "default", actor="ada", env=Still())
    for _ in range(2):
        again.cancel("t", mail_id="webhook-17")
    assert len(store.waiting("default", "t")) == 1


POSTER = """
import sys
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.mailbox.posting import Postman
postman = Postman(FileMailStore(sys.argv[1]), "default", actor="ada")
number = 0
while True:
    postman.steer("t", f"word {number} " + "x" * 3000, mail_id=f"m{sys.argv[2]}-{number}")
    print(number, flush=True)
    number += 1
"""


def test_a_killed_poster_leaves_whole_items_and_loses_none_it_was_told_of(store, tmp_path):
    for life in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", POSTER, str(tmp_path), str(life)], stdout=subprocess.PIPE, text=True
        )
        told = [int(child.stdout.readline()) for _ in range(5 + life)]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        ids = {found.id for found in store.waiting("default", "t")}
        assert {f"m{life}-{number}" for number in told} <= ids
