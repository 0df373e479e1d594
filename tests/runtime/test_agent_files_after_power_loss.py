"""Lease records, generations and mail in files, with the power cut ahead of every call that changes the disk.

What was acknowledged is there, everything there is whole; with syncs that do nothing each of these tests fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.support.faulty_env import Fault, FaultyEnv
from trajlake.runtime.leases.file_arbiter import FileArbiter
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, Head, LeaseRecord
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.schemas.ids import trajectory_key

CLAIM = Claim(tenant="default", trajectory_id="t", worker="a", writer="aa", host="in-memory")
KEY = trajectory_key("default", "t").hex()
SEEDS = [None, *range(6)]


def machine(*, sync_works: bool = True) -> FaultyEnv:
    env = FaultyEnv(sync_works=True)
    env.mkdir("/root")
    env.fsync_dir("/")
    env.sync_works = sync_works
    return env


def cut_everywhere(env: FaultyEnv, work: Callable[[], None], look: Callable[[FaultyEnv], None]) -> int:
    """Do `work`; ahead of each of its disk calls, and after it, `look` at the machine that a power loss leaves."""
    cuts = 0

    def before(operation: str, path: str) -> None:
        nonlocal cuts
        cuts += 1
        for seed in SEEDS:
            look(env.crash_image(seed))

    env.before = before
    work()
    for seed in SEEDS:
        look(env.crash_image(seed))
    env.before = lambda operation, path: None
    return cuts


def leases(env: FaultyEnv) -> FileLeaseStore:
    return FileLeaseStore("/root", env=env, writer_is_dead=lambda writer: False)


def test_a_granted_token_survives_and_the_record_is_whole_at_every_moment():
    env = machine()
    store, granted = leases(env), [0]

    def look(image: FaultyEnv) -> None:
        record: LeaseRecord | None = leases(image).read("default", "t")
        assert (record.highest_token if record else 0) >= granted[-1]
        if "head" in granted:
            assert record.ended_at(2)

    def work() -> None:
        lease = store.acquire(CLAIM, 1, expected=None)
        granted.append(1)
        lease = store.extend(lease, 100)
        store.release(lease)
        lease = store.acquire(CLAIM, 2, expected=store.read("default", "t").revision)
        granted.append(2)
        store.release(lease, Head(3, "00" * 32))

    assert cut_everywhere(env, work, look) > 20


def test_a_closed_tenure_stays_closed():
    env = machine()
    store = leases(env)
    store.release(store.acquire(CLAIM, 1, expected=None), Head(3, "00" * 32))
    for seed in SEEDS:
        assert leases(env.crash_image(seed)).read("default", "t").ended_at(1)


def test_a_generation_once_taken_is_never_free_again():
    env = machine()
    taken: list[int] = []

    def look(image: FaultyEnv) -> None:
        for generation in taken:
            assert not FileArbiter("/root", env=image).create(KEY, generation, b"{}")

    def work() -> None:
        for generation in range(3):
            assert FileArbiter("/root", env=env).create(KEY, generation, b"{}")
            taken.append(generation)

    cut_everywhere(env, work, look)


def mail(mail_id: str) -> MailItem:
    return MailItem(
        id=mail_id, tenant="default", trajectory_id="t", kind="steer", body={"text": "x" * 2000}, posted_at=1
    )


def test_posted_mail_survives_and_a_half_posted_item_is_whole_or_absent():
    env = machine()
    store, posted = FileMailStore("/root", env=env), set()

    def look(image: FaultyEnv) -> None:
        found = FileMailStore("/root", env=image).waiting("default", "t")
        assert {item.id for item in found} >= posted
        assert all(item == mail(item.id) for item in found)

    def work() -> None:
        for number in range(3):
            store.post(mail(f"m{number}"))
            posted.add(f"m{number}")

    assert cut_everywhere(env, work, look) > 12


def test_mail_posted_into_a_folder_whose_maker_was_killed_before_its_sync_survives():
    env = machine()
    env.mkdir("/root/mail")
    env.mkdir(f"/root/mail/{KEY}")
    FileMailStore("/root", env=env).post(mail("m0"))
    assert FileMailStore("/root", env=env.crash_image()).waiting("default", "t") == [mail("m0")]


def test_posting_again_what_a_killed_poster_left_unsynced_makes_it_durable():
    env = machine()
    FileMailStore("/root", env=env).post(mail("m0"))
    env.sync_works = False
    FileMailStore("/root", env=env).post(mail("m1"))
    env.sync_works = True
    store = FileMailStore("/root", env=env.process_death())
    env.file(f"/root/mail/{KEY}/m1.json").sync()  # its bytes were synced before it was linked
    assert not store.post(mail("m1"))
    assert {item.id for item in FileMailStore("/root", env=env.crash_image()).waiting("default", "t")} == {"m0", "m1"}


def test_deleted_mail_does_not_come_back():
    env = machine()
    store = FileMailStore("/root", env=env)
    store.post(mail("m0"))
    store.delete(mail("m0"))
    assert FileMailStore("/root", env=env.crash_image()).waiting("default", "t") == []


@pytest.mark.parametrize("what", ["lease", "generation", "mail"])
def test_without_syncs_the_same_work_is_lost(what):
    env = machine(sync_works=False)
    if what == "lease":
        leases(env).acquire(CLAIM, 1, expected=None)
        assert leases(env.crash_image()).read("default", "t") is None
    elif what == "generation":
        FileArbiter("/root", env=env).create(KEY, 0, b"{}")
        assert FileArbiter("/root", env=env.crash_image()).create(KEY, 0, b"{}")
    else:
        FileMailStore("/root", env=env).post(mail("m0"))
        assert FileMailStore("/root", env=env.crash_image()).waiting("default", "t") == []


def test_a_failed_sync_is_an_error_to_the_poster_and_no_damage_to_the_reader():
    for call in range(1, 12):
        env = machine()
        env.faults = {env.calls + call: Fault()}
        with contextlib.suppress(OSError):
            FileMailStore("/root", env=env).post(mail("m0"))
        for seed in SEEDS:
            assert FileMailStore("/root", env=env.crash_image(seed)).waiting("default", "t") in ([], [mail("m0")])
