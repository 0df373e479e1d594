"""What every replica promises (`runtime.replica.Replica`)."""

from __future__ import annotations

import threading
from hashlib import sha256

import pytest

from tests.support.events import event_of, info_of
from trajlake.runtime.replicas.replica import BlobNotHeld, Frame, events_of, frames_of
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.events import LeaseAcquired, Payload, TaskEnded, TaskStarted, VarSet

WRITER = "ab" * 16
OTHER_WRITER = "cd" * 16
DATA = b"bulk" * 10_000
SHA256 = sha256(DATA).hexdigest()


def frames(first: int, count: int, trajectory_id: str = "order-7", lsn: int | None = None) -> list[Frame]:
    events = [event_of(trajectory_id, number) for number in range(first, first + count)]
    start = first if lsn is None else lsn
    return frames_of(events, range(start, start + count), info_of(trajectory_id))


def naming_a_blob(lsn: int) -> list[Frame]:
    event = make_event(
        VarSet(name="x", value={"$blob": SHA256, "bytes": len(DATA), "kind": "text", "head": ""}), tenant="default",
        trajectory_id="order-7", sequence_number=lsn, fencing_token=1, turn=0, recorded_at=5, salt=bytes(16),
        prev=bytes(32),
    )  # fmt: skip
    return frames_of([event], [lsn], info_of("order-7"))


def numbers(replica, trajectory_id: str = "order-7") -> list[int]:
    return sorted({frame.header.sequence_number for frame in replica.read("default", trajectory_id)})


def test_what_was_appended_is_read_back_byte_for_byte_by_every_process(keeper):
    given = frames(0, 5)
    assert keeper.replica().append(WRITER, given) == 4
    found = sorted(keeper.replica().read("default", "order-7"), key=lambda frame: frame.header.lsn)
    assert [frame.payload for frame in found] == [frame.payload for frame in given]
    assert [event.hash for event in events_of(found)] == [event.hash for event in events_of(given)]
    assert [event.salt for event in events_of(found)] == [event.salt for event in events_of(given)]
    assert [frame.header.lsn for frame in found] == list(range(5))
    assert found[0].info == given[0].info


def test_nothing_appended_is_nothing_held(keeper):
    assert keeper.replica().append(WRITER, []) == -1
    assert keeper.replica().read("default", "order-7") == []


def test_appending_again_in_other_pieces_adds_nothing(keeper):
    replica = keeper.replica()
    replica.append(WRITER, frames(0, 4))
    replica.append(WRITER, frames(0, 4))
    assert replica.append(WRITER, frames(2, 5)) == 6
    keys = {(frame.header.sequence_number, frame.header.hash) for frame in replica.read("default", "order-7")}
    assert len(keys) == 7
    assert numbers(replica) == list(range(7))


def test_frames_need_not_be_neighbours_in_their_journal(keeper):
    keeper.replica().append(WRITER, [*frames(0, 2, lsn=10), *frames(2, 1, lsn=17), *frames(3, 2, lsn=30)])
    assert sorted(frame.header.lsn for frame in keeper.replica().read("default", "order-7")) == [10, 11, 17, 30, 31]


def test_trajectories_and_writers_are_kept_apart(keeper):
    replica = keeper.replica()
    replica.append(WRITER, [*frames(0, 2), *frames(0, 2, "order-8", lsn=2)])
    replica.append(OTHER_WRITER, frames(2, 2, lsn=0))
    assert numbers(replica) == [0, 1, 2, 3]
    assert numbers(replica, "order-8") == [0, 1]
    assert replica.read("other", "order-7") == []


def test_open_trajectories_are_those_whose_canonical_history_has_no_end(keeper):
    def of(name: str, *payloads: Payload, token: int = 1) -> list[Frame]:
        events, prev = [], genesis("default", name)
        for number, payload in enumerate(payloads):
            event = make_event(
                payload, tenant="default", trajectory_id=name, sequence_number=number, fencing_token=token, turn=-1,
                recorded_at=5, salt=bytes(16), prev=prev,
            )  # fmt: skip
            events.append(event)
            prev = event.hash
        return frames_of(events, range(len(events)), info_of(name))

    ended = of("ended", TaskStarted(), TaskEnded(status="completed"))
    going = of("going", TaskStarted(), VarSet(name="x", value=1))
    superseded = of("superseded", TaskStarted(), TaskEnded(status="completed"))
    first = events_of(superseded)[0]
    opening = make_event(
        LeaseAcquired(token=2, after_token=1, after_sequence=0, after_hash=first.hash.hex()), tenant="default",
        trajectory_id="superseded", sequence_number=1, fencing_token=2, turn=-1, recorded_at=5, salt=bytes(16),
        prev=first.hash,
    )  # fmt: skip
    replica = keeper.replica()
    for frames_given in (ended, going, superseded, frames_of([opening], [9], info_of("superseded"))):
        replica.append(sha256(frames_given[0].data).hexdigest()[:32], frames_given)
    assert keeper.replica().open_trajectories("default") == ["going", "superseded"]
    assert keeper.replica().open_trajectories("other") == []


def test_a_blob_is_held_for_its_tenant_and_read_back_whole(keeper):
    keeper.replica().put("default", SHA256, DATA)
    keeper.replica().put("default", SHA256, DATA)
    assert keeper.replica().get("default", SHA256) == DATA
    with pytest.raises(FileNotFoundError):
        keeper.replica().get("other", SHA256)


def test_bytes_that_are_not_what_their_name_says_are_refused(keeper):
    with pytest.raises(ValueError, match=SHA256):
        keeper.replica().put("default", SHA256, DATA + b"x")


def test_frames_are_refused_until_every_blob_they_name_is_held(keeper):
    with pytest.raises(BlobNotHeld, match=SHA256):
        keeper.replica().append(WRITER, [*frames(0, 1), *naming_a_blob(1)])
    assert keeper.replica().read("default", "order-7") == []
    keeper.replica().put("default", SHA256, DATA)
    keeper.replica().append(WRITER, [*frames(0, 1), *naming_a_blob(1)])
    assert numbers(keeper.replica()) == [0, 1]


def test_a_blob_of_another_tenant_does_not_count(keeper):
    keeper.replica().put("other", SHA256, DATA)
    with pytest.raises(BlobNotHeld):
        keeper.replica().append(WRITER, naming_a_blob(0))


def test_agents_that_append_at_once_lose_nothing(keeper):
    def work(number: int) -> None:
        replica = keeper.replica()
        for first in range(0, 20, 4):
            replica.append(f"{number:032x}", frames(first, 4, f"t{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert numbers(keeper.replica(), f"t{number}") == list(range(20))
