"""The fold gives the same bytes wherever the log is cut, in whatever process. Failures name the seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, RandomLog
from trajlake.schemas.history import covered, given_up, roll_backs
from trajlake.schemas.state import (
    Folder,
    RolledBackPast,
    fold,
    from_parts,
    initial,
    parts,
    state_bytes,
    state_from,
)

START = initial(TENANT, TRAJECTORY)
PROJECT = Path(__file__).resolve().parents[2]


def check_every_cut(seed: int, length: int) -> int:
    events = RandomLog(seed, length).events
    whole = state_bytes(fold(START, events))
    inside = {one.sequence_number for one in covered(events, roll_backs(events))}
    void = 0
    for cut in range(len(events) + 1):
        at_cut = from_parts(parts(state_from(state_bytes(fold(START, events[:cut])))))
        past = refusal(at_cut, events[cut:])
        if past is not None:
            void += 1
            assert cut - 1 in inside, f"seed {seed}, cut {cut}: refused outside every roll-back"
            cut = past.to + 1
            at_cut = fold(START, events[:cut])
        assert state_bytes(fold(at_cut, events[cut:])) == whole, f"seed {seed}, cut {cut}"
    return void


def refusal(state, events):
    try:
        fold(state, events)
    except RolledBackPast as past:
        return past
    return None


@pytest.mark.parametrize("seed", range(16))
def test_a_suffix_onto_the_state_at_any_cut_gives_the_bytes_of_the_whole(seed):
    check_every_cut(seed, 90)


@pytest.mark.long
def test_a_suffix_onto_the_state_at_any_cut_gives_the_bytes_of_the_whole_for_many_seeds():
    assert sum(check_every_cut(seed, 160) for seed in range(100, 300)) > 100


def test_random_logs_do_hold_roll_backs_and_things_given_up():
    logs = [RandomLog(seed, 90).events for seed in range(16)]
    assert sum(len(roll_backs(events)) for events in logs) > 20
    assert sum(len(given_up(events)) for events in logs) > 100
    assert any(len(given_up(events)) < len(covered(events, roll_backs(events))) for events in logs)


@pytest.mark.parametrize("seed", range(16))
def test_a_roll_back_brings_back_what_stood_at_its_checkpoint(seed):
    events = RandomLog(seed, 90).events
    for back in roll_backs(events):
        before = fold(START, events[: back.to + 1])
        after = fold(START, events[: back.sequence_number + 1])
        assert after.intent == before.intent, f"seed {seed}, roll-back {back}"
        for name in ("turn", "turn_start", "vars", "context", "reply", "system_no", "workspace", "compacted"):
            kept, now = getattr(before.execution, name), getattr(after.execution, name)
            assert kept == now, f"seed {seed}, roll-back {back}: {name}"
        assert list(before.execution.actions) == list(after.execution.actions), f"seed {seed}, roll-back {back}"


@pytest.mark.parametrize("seed", range(8))
def test_spend_never_falls_and_a_limit_moves_only_by_a_revision(seed):
    events = RandomLog(seed, 120).events
    before = START.execution.budget
    for number in range(len(events)):
        budget = fold(START, events[: number + 1]).execution.budget
        for unit, amount in before.spent.items():
            assert float(budget.spent[unit]) >= float(amount), f"seed {seed}, event {number}"
        if events[number].type not in ("TaskStarted", "BudgetRevised"):
            assert budget.limits == before.limits, f"seed {seed}, event {number}"
        before = budget


@pytest.mark.parametrize("seed", range(8))
def test_a_folder_fed_one_by_one_agrees_and_its_old_states_do_not_change(seed):
    events = RandomLog(seed, 120).events
    folder, texts = Folder(START), []
    for event in events:
        try:
            folder.apply(event)
        except RolledBackPast:
            folder = Folder(fold(START, events[: event.sequence_number + 1]))
        texts.append((folder.state(), state_bytes(folder.state())))
    assert texts[-1][1] == state_bytes(fold(START, events)), f"seed {seed}"
    assert all(state_bytes(state) == text for state, text in texts), f"seed {seed}"


@pytest.mark.parametrize("seed", range(12))
def test_a_folder_that_knows_the_events_ahead_serves_them_one_by_one(seed):
    events = RandomLog(seed, 120).events
    whole = state_bytes(fold(START, events))
    for cut in range(0, len(events), 7):
        at_cut = fold(START, events[:cut])
        if refusal(at_cut, events[cut:]) is not None:
            with pytest.raises(RolledBackPast):
                Folder(at_cut, ahead=events[cut:])
            continue
        folder = Folder(at_cut, ahead=events[cut:])
        for one in events[cut:]:
            folder.apply(one)
        assert state_bytes(folder.state()) == whole, f"seed {seed}, cut {cut}"


def digest_of_states() -> str:
    running = hashlib.sha256()
    for seed in range(6):
        state = fold(START, RandomLog(seed, 150).events)
        running.update(state_bytes(state))
        for name, text in parts(state).items():
            running.update(name.encode() + text)
    return running.hexdigest()


def test_two_processes_with_different_hash_seeds_give_the_same_bytes():
    def run(hash_seed: str) -> str:
        program = "from tests.properties.test_state_fold import digest_of_states; print(digest_of_states())"
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.strip()

    assert run("1") == run("4242") == digest_of_states()
