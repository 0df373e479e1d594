"""The warm tier: what is durable is queryable soon, once, in canonical order; nothing else is."""

from __future__ import annotations

import itertools
import random
import threading
import time

import msgspec
import pytest

from tests.ingest.stores.histories import NOW_US, History, info, write
from trajlake.ingest import warm as warm_module
from trajlake.ingest.journal_tail import JournalTail
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import list_segments
from trajlake.schemas import events as types
from trajlake.schemas.history import canonical

pytestmark = pytest.mark.postgres


@pytest.fixture
def root(tmp_path) -> Root:
    return Root.open(str(tmp_path / "journal"))


def shipper(root, warm) -> WarmShipper:
    return WarmShipper(root, PostgresWarmTier(Database(warm.url)))


def test_a_shipped_event_has_every_column_of_its_frame_and_of_the_chain(root, warm):
    history = History()
    event = history.start()
    write(root, history.events)
    assert shipper(root, warm).run().events == 1
    row = warm.rows(
        "select tenant, trajectory_id, sequence_number, event_type, fencing_token, turn, payload->'task'->>'text',"
        " salt, commitment, cryptographic_hash, lsn, started_on::text, model, created_at = recorded_at,"
        " extract(epoch from recorded_at) * 1000000, frame from events"
    )[0]
    assert row[:9] == ("default", "order-7", 0, "TaskStarted", 1, -1, "go", event.salt.hex(), event.commitment.hex())
    assert row[9:15] == (event.hash.hex(), 0, "2026-11-30", "m@2", True, NOW_US)
    assert event.payload in bytes(row[15])


def test_shipping_again_adds_nothing_and_a_lost_cursor_doubles_nothing(root, warm):
    history = History()
    history.start()
    history.say(20)
    write(root, history.events)
    assert shipper(root, warm).run().events == 21
    assert shipper(root, warm).run().events == 0
    warm.rows("update journal_cursors set next_lsn = 0 returning 1")
    report = shipper(root, warm).run()
    assert (report.events, report.duplicates) == (21, 21)
    assert warm.value("select count(*) from events") == 21
    assert warm.rows("select events, duplicates, superseded, held_back from trajectories") == [(21, 21, 0, 0)]


def test_the_active_segment_is_shipped_up_to_what_is_durable_and_the_last_barrier_soon_after(root, warm):
    history = History()
    history.start()
    writer = root.claim_writer()
    writer.append(history.events, info()).wait()
    ships = shipper(root, warm)
    ends = time.monotonic() + 5
    while not ships.run().events:
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert not any(one.is_sealed for one in list_segments(root.env, root.writer_folder(writer.writer_id)))
    assert warm.value("select count(*) from events") == 1
    writer.close()


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS)
def test_the_view_is_canonical_whatever_the_order_in_which_writers_arrive(root, warm, order):
    first = History()
    first.start()
    first.say(4)
    paused = first.then(2, first.events[2])
    paused.say(3)
    second = first.then(3, first.events[4])
    second.say(2)
    runs = [first.events, paused.events, second.events]
    for place in order:
        write(root, runs[place])
        shipper(root, warm).run()
        seen = [event for done in order[: order.index(place) + 1] for event in runs[done]]
        expected = canonical(seen)
        got = warm.rows("select sequence_number, fencing_token, cryptographic_hash from events order by 1")
        assert got == [(e.sequence_number, e.fencing_token, e.hash.hex()) for e in expected.events]
        counts = warm.rows("select superseded, held_back, conflicts from trajectories")
        assert counts == [(len(expected.superseded), len(expected.held_back), len(expected.conflicts))]
    uncounted = warm.rows("select sequence_number, fencing_token from uncounted_events order by 1, 2")
    assert uncounted == [(e.sequence_number, e.fencing_token) for e in canonical(itertools.chain(*runs)).superseded]


def test_two_events_under_one_key_are_a_conflict_and_only_the_smaller_hash_counts(root, warm):
    one, other = History(salt=1), History(salt=2)
    for history in (one, other):
        history.start()
        history.say(2)
    write(root, one.events, other.events)
    shipper(root, warm).run()
    expected = canonical(one.events + other.events)
    assert warm.value("select conflicts from trajectories") == len(expected.conflicts) == 3
    got = [row[0] for row in warm.rows("select cryptographic_hash from events order by sequence_number")]
    assert got == [event.hash.hex() for event in expected.events]


def random_history(chance: random.Random) -> list[list]:
    """Workers that take over at random places, each from what one of the earlier ones wrote."""
    first = History()
    first.start()
    first.say(chance.randrange(1, 6))
    workers = [first]
    for token in range(2, chance.randrange(3, 7)):
        source = chance.choice(workers)
        taken = source.then(token, chance.choice(source.events))
        taken.say(chance.randrange(0, 5))
        workers.append(taken)
    return [worker.events for worker in workers]


@pytest.mark.parametrize("seed", range(6))
def test_random_take_overs_in_random_pieces_end_as_canonical_says(root, warm, seed):
    chance = random.Random(seed)
    runs = random_history(chance)
    pieces = [run[i : i + 2] for run in runs for i in range(0, len(run), 2)]
    chance.shuffle(pieces)
    ships = shipper(root, warm)
    for piece in pieces:
        write(root, piece)
        ships.run()
    expected = canonical(itertools.chain(*runs))
    got = warm.rows("select sequence_number, fencing_token, cryptographic_hash from events order by 1")
    assert got == [(e.sequence_number, e.fencing_token, e.hash.hex()) for e in expected.events], f"seed {seed}"
    assert warm.rows("select superseded, held_back from trajectories") == [
        (len(expected.superseded), len(expected.held_back))
    ], f"seed {seed}"


def test_doubts_approvals_and_status_follow_the_events(root, warm):
    history = History()
    history.start()
    history.intent("1.0")
    history.result("1.0")
    history.intent("3.0", timeout_s=30.0)
    history.add(
        types.ApprovalRequested(approval_id="a1", action_id="4.0", tool="pay", arguments_hash="e", question="Pay?")
    )
    history.add(
        types.ApprovalRequested(approval_id="a2", action_id="4.1", tool="pay", arguments_hash="e", question="Or?")
    )
    history.add(types.ApprovalResolved(approval_id="a2", action_id="4.1", decision="granted", approver="ada"))
    write(root, history.events)
    shipper(root, warm).run()
    # The time of the events lies in the past: the deadline of the second intent has gone by.
    assert warm.rows("select action_id, tool, attempt from doubts") == [("3.0", "charge", 1)]
    assert warm.rows("select approval_id, question, expired from approvals_waiting") == [("a1", "Pay?", False)]
    assert warm.rows("select status, open_intents, doubts, approvals, events from status") == [("parked", 1, 1, 1, 7)]
    rest = History()
    rest.number, rest.prev = history.number, history.prev
    rest.result("3.0")
    rest.add(types.TaskEnded(status="completed"))
    write(root, rest.events)
    shipper(root, warm).run()
    assert warm.rows("select * from doubts") == warm.rows("select * from approvals_waiting") == []
    assert warm.rows("select status, open_intents, events from status") == [("completed", 0, 9)]


def test_an_intent_of_a_superseded_worker_leaves_the_queue_with_it(root, warm):
    first = History()
    first.start()
    first.say(2)
    first.intent("2.0", timeout_s=1.0)
    write(root, first.events)
    shipper(root, warm).run()
    assert warm.value("select count(*) from doubts") == 1
    other = first.then(2, first.events[1])
    write(root, other.events)
    shipper(root, warm).run()
    assert warm.value("select count(*) from doubts") == 0
    assert warm.value("select superseded from trajectories") == 2


def test_an_erased_trajectory_loses_its_texts_and_never_gets_them_back(root, warm):
    history = History()
    history.start()
    history.say(3)
    write(root, history.events[:2])
    shipper(root, warm).run()
    assert warm.value("select erase_trajectory('default', 'order-7', 1)") == 2
    write(root, history.events)
    shipper(root, warm).run()
    rows = warm.rows("select payload, salt, frame, cryptographic_hash, commitment from events order by sequence_number")
    assert [row[:3] for row in rows] == [(None, None, None)] * 4
    assert [row[3:] for row in rows] == [(event.hash.hex(), event.commitment.hex()) for event in history.events]


def test_rows_that_were_prepared_before_an_erasure_bring_no_text_back(root, warm):
    history = History()
    history.start()
    history.say(3)
    write(root, history.events[:2])
    shipper(root, warm).run()
    write(root, history.events)
    tails = [JournalTail(root.env, root.writer_folder(writer), 0) for writer in root.writers()]
    tier, frames = PostgresWarmTier(Database(warm.url)), max((tail.read(100) for tail in tails), key=len)
    prepared = tier.prepare("b" * 32, frames, lambda: None)
    warm.value("select erase_trajectory('default', 'order-7', 1)")
    tier.insert("b" * 32, frames, from_lsn=frames[0].header.lsn, prepared=prepared)
    assert warm.value("select count(*) from events") == 4
    assert warm.value("select count(*) from events where num_nonnulls(payload, salt, frame) > 0") == 0


def test_many_events_are_prepared_ahead_and_come_in_as_they_would_one_by_one(root, warm, monkeypatch):
    for name, count in (("BATCH_EVENTS_MAX", 40), ("FIRST_EVENTS_MAX", 20), ("AHEAD_FROM_EVENTS", 10)):
        monkeypatch.setattr(warm_module, name, count)
    lives = [History(f"t{number}") for number in range(5)]
    for history in lives:
        history.start()
        history.say(10)
        history.intent("0.0")
        history.add(
            types.ToolResult(action_id="0.0", status="ok", output={"$blob": "ab" * 32, "bytes": 1, "kind": "text"})
        )
        history.say(50)
    writer = root.claim_writer()
    for place in range(0, 63, 9):
        for history in lives:
            writer.append(history.events[place : place + 9], history.info).wait()
    writer.close()
    ahead = shipper(root, warm)
    assert ahead.run().events == 315
    found = warm.rows("select trajectory_id, cryptographic_hash from events order by trajectory_id, sequence_number")
    assert found == [(h.info.trajectory_id, event.hash.hex()) for h in lives for event in h.events]
    assert warm.value("select count(*) from trajectory_blob_refs") == 5
    assert warm.rows("select distinct duplicates, superseded, held_back, conflicts from trajectories") == [(0, 0, 0, 0)]
    assert warm.value("select count(*) from doubts") == 0


def test_take_overs_are_still_understood_after_an_erasure(root, warm):
    first = History()
    first.start()
    first.say(2)
    second = first.then(2, first.events[2])
    write(root, first.events, second.events)
    shipper(root, warm).run()
    warm.value("select erase_trajectory('default', 'order-7', 1)")
    second.say(1)
    late = first.then(3, second.events[-1])
    write(root, second.events[-1:], late.events)
    shipper(root, warm).run()
    assert warm.rows("select fencing_token from events order by sequence_number") == [(1,)] * 3 + [(2,)] * 2 + [(3,)]


def test_payloads_that_jsonb_cannot_hold_are_shipped_and_marked(root, warm):
    history = History()
    history.start()
    event = history.say(1)[0]
    texts = [
        rb'{"name":"x","value":"a\u0000b"}',
        rb'{"name":"\ud800"}',
        b'{"name":',
        rb'{"name":"\\u0000"}',
        b'{"n":1e999999}',
    ]
    writer = root.claim_writer()
    for number, text in enumerate(texts):
        strange = msgspec.structs.replace(
            event, sequence_number=1 + number, payload=text, hash=bytes([number]) * 32, commitment=None
        )
        writer.append([history.events[0], strange] if number == 0 else [strange], info())
    writer.close()
    shipper(root, warm).run()
    got = [
        row[0]
        for row in warm.rows("select payload from trajectory_events where sequence_number > 0 order by sequence_number")
    ]
    assert [("$not_jsonb" in (one or {})) for one in got] == [True, True, True, False, True]
    assert warm.value("select count(*) from trajectory_events where frame is not null") == 6


def test_two_shippers_of_one_root_lose_nothing_and_double_nothing(root, warm):
    histories = [History(f"t{number}") for number in range(6)]
    for history in histories:
        history.start()
        history.say(60)
    write(root, *[history.events for history in histories])
    shippers = [shipper(root, warm) for _ in range(2)]
    threads = [threading.Thread(target=one.run) for one in shippers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warm.rows("select trajectory_id, events, held_back from trajectories order by 1") == [
        (f"t{number}", 61, 0) for number in range(6)
    ]
    assert warm.value("select count(*) from trajectory_events") == 366


def test_a_tenant_role_sees_its_own_tenant_only(root, warm):
    for tenant in ("acme", "umbra"):
        history = History(tenant=tenant)
        history.start()
        history.add(
            types.ApprovalRequested(approval_id="a", action_id="0.0", tool="t", arguments_hash="e", question="?")
        )
        write(root, history.events)
    shipper(root, warm).run()
    role = "reader_" + warm.value("select current_schema()")
    warm._connection.execute(f"create role {role}")
    try:
        warm.value(f"select add_tenant_role('{role}', 'acme')")
        warm._connection.execute(f"set role {role}")
        for view in ("events", "trajectory_events", "status", "approvals_waiting", "trajectories"):
            assert {row[0] for row in warm.rows(f"select tenant from {view}")} == {"acme"}, view
        with pytest.raises(Exception, match="permission denied"):
            warm.rows("select * from trajectory_events_0")
        with pytest.raises(Exception, match="permission denied"):
            warm.rows("insert into tenant_roles values (current_user, 'umbra') returning 1")
    finally:
        warm._connection.execute(f"reset role; drop owned by {role}; drop role {role}")
