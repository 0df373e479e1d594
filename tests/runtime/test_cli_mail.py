"""The verbs that post mail: what is posted, in whose name, and what is refused before it is."""

from __future__ import annotations

import json

import pytest

from tests.runtime.root_scene import InProcess, full_root
from trajlake.runtime.mailbox.file_mail import FileMailStore


@pytest.fixture
def trajlake(tmp_path, monkeypatch, capsys):
    return InProcess(tmp_path, monkeypatch, capsys)


@pytest.fixture
def scene(tmp_path):
    scene = full_root(tmp_path / "journal")
    yield scene
    scene.close()


def posted(scene, trajectory_id, tenant="default"):
    return FileMailStore(scene.root.path).waiting(tenant, trajectory_id)


@pytest.mark.parametrize(
    ("words", "kind", "subject", "body"),
    [
        (
            ["approve", "asks", "ask-1", "--because", "fine"],
            "approval", "ask-1", {"decision": "granted", "because": "fine"},
        ),
        (["deny", "asks", "1.0"], "approval", "1.0", {"decision": "denied", "because": ""}),
        (["cancel", "left", "--because", "enough"], "cancel", "", {"because": "enough"}),
        (
            ["settle", "doubtful", "1.0", "--executed", "--because", "bank", "--output", '{"n": 1}'],
            "settle", "1.0", {"verdict": "executed", "because": "bank", "output": {"n": 1}},
        ),
        (
            ["settle", "doubtful", "1.0", "--not-executed", "--because", "bank"],
            "settle", "1.0", {"verdict": "not_executed", "because": "bank"},
        ),
        (
            ["settle", "doubtful", "1.0", "--executed", "--because", "bank", "--evidence", "statement 7"],
            "settle", "1.0", {"verdict": "executed", "because": "bank", "evidence": "statement 7"},
        ),
        (["deliver", "doubtful", "call_1", "--output", "x"], "result", "call_1", {"status": "ok", "output": "x"}),
        (["deliver", "doubtful", "1.0", "--error", "no"], "result", "1.0", {"status": "error", "error": "no"}),
        (["steer", "left", "slow down"], "steer", "", {"text": "slow down"}),
    ],
)  # fmt: skip
def test_each_verb_posts_one_item(scene, trajlake, words, kind, subject, body):
    done = trajlake(*words, "--as", "ada", "--json")
    assert done.returncode == 0, done.stderr
    (item,) = posted(scene, words[1])
    assert (item.kind, item.subject, item.body, item.actor) == (kind, subject, body, "ada")
    assert "os user" in item.actor_known_by
    assert json.loads(done.stdout)["id"] == item.id


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["approve", "asks", "ask-7"], "nobody asked"),
        (["approve", "done", "ask-1"], "ended"),
        (["cancel", "done"], "ended"),
        (["settle", "left", "1.0", "--executed", "--because", "x"], "nothing was sent"),
        (["settle", "done", "1.0", "--executed", "--because", "x"], "decided before"),
        (["settle", "doubtful", "1.0", "--executed", "--because", " "], "needs a reason"),
        (["settle", "doubtful", "1.0", "--because", "x"], "--executed or --not-executed"),
        (["settle", "doubtful", "1.0", "--executed"], "--because"),
        (["settle", "doubtful", "1.0", "--not-executed", "--because", "x", "--output", "1"], "cannot be not executed"),
        (["deliver", "left", "9.9", "--output", "1"], "unknown action"),
        (["deliver", "doubtful", "1.0"], "either --output or --error"),
        (["steer", "left", " "], "empty message"),
        (["steer", "nobody", "hi"], "no trajectory 'nobody'"),
        (["steer", "theirs", "hi"], "of tenant 'default'"),
        (["steer", "left", "hi", "--journal", "elsewhere"], "elsewhere"),
        (["cancel", "left", "--tenant", "a/b"], "tenant"),
    ],
)
def test_what_the_trajectory_would_not_take_is_refused_in_one_line_and_not_posted(scene, trajlake, words, why):
    done = trajlake(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert why in done.stderr
    assert posted(scene, words[1]) == []


def test_another_tenants_trajectory_is_reached_by_naming_the_tenant(scene, trajlake):
    done = trajlake("steer", "theirs", "hi", "--tenant", "acme")
    assert done.returncode == 0, done.stderr
    assert "nobody works on it" in done.stdout
    assert len(posted(scene, "theirs", "acme")) == 1


def test_a_trajectory_at_work_is_said_to_be(scene, trajlake):
    assert "worker-1" in trajlake("steer", "at-work", "hi").stdout
