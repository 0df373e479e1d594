"""Canonical history and what a roll-back gives up: the rules one by one, and the model check's counterexamples."""

from __future__ import annotations

import itertools

import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, Log, event, mail
from trajlake.schemas import events as e
from trajlake.schemas.chain import genesis, verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import NoSuchTurn, Opening, branch_point, branch_prefix, canonical, given_up

GENESIS = genesis(TENANT, TRAJECTORY)


def start(token: int = 1) -> Event:
    return event(e.TaskStarted(task="x"), 0, token, GENESIS, -1)


def plain(number: int, token: int, prev: Event, value: object = 0) -> Event:
    return event(e.InputRead(kind="now", value=value), number, token, prev.hash)


def opening(token: int, after: Event) -> Event:
    body = e.LeaseAcquired(
        token=token,
        after_token=after.fencing_token,
        after_sequence=after.sequence_number,
        after_hash=after.hash.hex(),
    )
    return event(body, after.sequence_number + 1, token, after.hash)


def line_of(token: int, first: Event, length: int) -> list[Event]:
    """`first` and `length` plain events of its token after it."""
    made = [first]
    for _ in range(length):
        made.append(plain(made[-1].sequence_number + 1, token, made[-1], f"t{token}"))
    return made


def keys(events: list[Event]) -> list[tuple[int, int]]:
    return [(one.sequence_number, one.fencing_token) for one in events]


def test_one_tenure_in_any_order_is_its_events_in_order():
    events = line_of(1, start(), 4)
    for order in itertools.permutations(events):
        assert canonical(order).events == events


def test_a_take_over_supersedes_what_its_predecessor_wrote_after_it():
    first = line_of(1, start(), 4)
    second = line_of(2, opening(2, first[2]), 1)
    found = canonical(first + second)
    assert keys(found.events) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]
    assert keys(found.superseded) == [(3, 1), (4, 1)]
    assert [one.token for one in found.line] == [1, 2]


def test_counterexample_g1_a_lower_token_its_successor_never_read_supersedes_nothing_acknowledged():
    """A (token 1) writes 0..2; B's opening (token 2, number 3) waits in its queue; A makes 3..4 durable, takes token
    3 without having seen token 2, opens at 5, returns. B's opening reaches the disk last."""
    a = line_of(1, start(), 4)
    again = line_of(3, opening(3, a[4]), 1)
    late = [opening(2, a[2])]
    for order in itertools.permutations([a, again, late]):
        found = canonical([one for part in order for one in part])
        assert found.events == a + again
        assert found.superseded == late
        assert found.held_back == []


def test_counterexample_m2_an_opening_that_has_not_landed_never_leaves_chain_invalid_rows():
    """{0 t1, 1 t1 (superseded), 2 opening t3} landed, the opening of t2 (number 1) did not."""
    first = line_of(1, start(), 1)
    second = opening(2, first[0])
    third = opening(3, second)
    found = canonical([*first, third])
    assert found.events == first
    assert found.held_back == [third]
    assert verify(found.events) == []
    whole = canonical([*first, third, second])
    assert whole.events == [first[0], second, third]
    assert whole.superseded == [first[1]]
    assert verify(whole.events) == []


def test_counterexample_v1_the_simpler_rule_would_lose_acknowledged_events_and_this_one_does_not():
    a = line_of(1, start(), 4)
    end = opening(3, a[4])
    landed = [*a, opening(2, a[2]), end]
    starts = {1: 0, 2: 3, 3: 5}
    simpler = [
        one
        for one in landed
        if one.sequence_number >= starts[one.fencing_token]
        and all(one.sequence_number < first for token, first in starts.items() if token > one.fencing_token)
    ]
    assert (4, 1) not in keys(simpler)
    assert (4, 1) in keys(canonical(landed).events)


def test_a_known_opening_completes_a_line_whose_event_is_elsewhere():
    first = line_of(1, start(), 1)
    second = line_of(2, opening(2, first[1]), 1)
    third = line_of(3, opening(3, second[1]), 1)
    known = canonical(first + second).line
    assert canonical(first + third).line[-1].token == 1
    found = canonical(second[1:] + third, known, after=2)
    assert keys(found.events) == [(3, 2), (4, 3), (5, 3)]
    assert found.rewound is False


def test_a_line_that_leaves_the_folded_history_is_said_so():
    first = line_of(1, start(), 3)
    second = line_of(2, opening(2, first[1]), 2)
    known = (Opening(token=1, start=0),)
    assert canonical(second, known, after=1).rewound is False
    assert canonical(second, known, after=3).rewound is True
    off = canonical([opening(3, first[3])], canonical(first + second).line, after=4)
    assert off.rewound is True


def test_everything_after_a_gap_is_held_back():
    events = line_of(1, start(), 5)
    found = canonical(events[:2] + events[3:])
    assert found.events == events[:2]
    assert found.held_back == events[3:]


def test_without_a_first_event_everything_is_held_back():
    events = line_of(1, start(), 3)
    assert canonical(events[1:]).events == []
    assert canonical(events[1:]).held_back == events[1:]
    assert canonical([]).events == []


def test_copies_are_dropped_and_counted():
    events = line_of(1, start(), 2)
    found = canonical(events + events[1:])
    assert found.events == events
    assert found.duplicates == 2
    assert found.conflicts == []


def test_of_two_events_under_one_number_and_token_the_smaller_hash_stays_whatever_the_order():
    first = start()
    pair = sorted([plain(1, 1, first, "a"), plain(1, 1, first, "b")], key=lambda one: one.hash)
    for order in itertools.permutations([first, *pair]):
        found = canonical(order)
        assert found.events == [first, pair[0]]
        assert found.conflicts == [pair[1]]


def test_a_re_import_under_a_higher_mapping_version_replaces_the_older_whole():
    old, new = line_of(0, start(0), 5), line_of(1, start(1), 2)
    for events in (old + new, new + old):
        found = canonical(events)
        assert found.events == new
        assert found.superseded == old


def test_an_erased_copy_stays_erased_and_needs_its_opening_from_elsewhere():
    first = line_of(1, start(), 0)
    taken = opening(2, first[0])
    after = plain(2, 2, taken)
    bare = Event(**{name: getattr(taken, name) for name in taken.__struct_fields__} | {"payload": None, "salt": None})
    for events in ([*first, bare, after], [after, bare, *first]):
        assert canonical(events).events == first
        assert canonical(events, [Opening(token=2, start=1, after_token=1, after_sequence=0)]).events[1:] == [
            bare,
            after,
        ]
    assert canonical([*first, bare, taken]).events[1].payload is None
    assert canonical([*first, taken, bare]).events[1].payload is None


@pytest.mark.parametrize(
    ("after_token", "after_sequence"), [(2, 1), (1, 0), (1, 2), (9, 1)], ids=["self", "low", "high", "unknown"]
)
def test_an_opening_that_names_no_true_predecessor_has_no_line(after_token: int, after_sequence: int):
    first = line_of(1, start(), 1)
    body = e.LeaseAcquired(token=2, after_token=after_token, after_sequence=after_sequence, after_hash="")
    wrong = event(body, 2, 2, first[1].hash)
    found = canonical([*first, wrong])
    assert found.events == first
    assert found.held_back == [wrong]


def rolled() -> Log:
    """0 start, 1 reply (calls 1.0, 1.1), 2 intent 1.0, 3 checkpoint, 4.. given up."""
    log = Log()
    log.add(e.TaskStarted(task="x"))
    log.reply("pay", "pay", turn=0)
    log.intent("1.0")
    log.checkpoint()
    return log


def test_given_up_are_the_events_after_the_checkpoint_but_not_life_authority_mail_and_standing_results():
    log = rolled()
    log.add(e.ToolResult(action_id="1.0", status="ok"))  # 4 answers an intent that stands
    log.intent("1.1")  # 5
    log.add(e.ToolResult(action_id="1.1", status="ok"))  # 6
    log.add(e.MessageAdded(role="user", wire={}, item_hash="", mail=mail(1)))  # 7 by mail
    log.add(e.MessageAdded(role="user", wire={}, item_hash=""))  # 8
    log.add(e.BudgetRevised(limits={"usd": "1"}))  # 9 authority
    log.opening()  # 10 life
    log.add(e.VarSet(name="a", value=1))  # 11
    log.checkpoint()  # 12 void
    log.add(e.ToolResult(action_id="1.1", status="ok", mail=mail(2)))  # 13 by mail
    log.roll_back(3, 0)
    assert given_up(log.events) == {5, 6, 8, 11, 12}


def test_without_a_roll_back_nothing_is_given_up():
    assert given_up(rolled().events) == frozenset()


def test_a_later_roll_back_may_cover_an_earlier_one_and_then_its_results_fall_too():
    log = Log()
    log.add(e.TaskStarted(task="x"))
    log.checkpoint()  # 1
    log.reply("pay", turn=0)  # 2
    log.intent("2.0")  # 3
    log.checkpoint()  # 4
    log.add(e.ToolResult(action_id="2.0", status="ok"))  # 5 stands after the first roll-back
    log.roll_back(4, 0)  # 6
    assert given_up(log.events) == frozenset()
    log.roll_back(1, -1)  # 7
    assert given_up(log.events) == {2, 3, 4, 5}


def test_intents_before_the_events_are_told_by_their_action_ids():
    log = rolled()
    log.add(e.ToolResult(action_id="1.0", status="ok"))
    log.roll_back(3, 0)
    assert given_up(log.events[4:], {"1.0"}) == frozenset()
    assert given_up(log.events[4:]) == {4}


def test_a_branch_inherits_what_stands_before_the_first_event_of_its_turn():
    log = rolled()
    log.add(e.VarSet(name="a", value=1), turn=1)  # 4, given up
    log.add(e.CancelRequested(mail=mail(1)))  # 5, counts, yet begins no turn
    log.roll_back(3, 0)  # 6
    log.add(e.VarSet(name="a", value=2), turn=1)  # 7
    log.add(e.VarSet(name="a", value=3), turn=2)  # 8
    assert branch_point(log.events, 0) == 0
    assert branch_point(log.events, 1) == 6
    assert branch_point(log.events, 2) == 7
    assert branch_point(log.events, 3) == 8
    assert [one.sequence_number for one in branch_prefix(log.events, 1)] == [0, 1, 2, 3, 5, 6]
    with pytest.raises(NoSuchTurn, match="last turn is 2"):
        branch_point(log.events, 4)
