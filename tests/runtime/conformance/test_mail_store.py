"""What every mail store promises (`runtime.mail.MailStore`)."""

from __future__ import annotations

import threading

import pytest

from trajlake.runtime.mailbox.mail import ITEM_MAX, MailConflict, MailItem, MailRefused
from trajlake.schemas.errors import InvalidId


def item(mail_id: str = "m1", **fields) -> MailItem:
    given = {"tenant": "default", "trajectory_id": "order-7", "kind": "steer", "body": {"text": "hold on"}}
    return MailItem(id=mail_id, **given | {"actor": "ada", "actor_known_by": "unix user", "posted_at": 5} | fields)


def waiting(backend, trajectory_id="order-7"):
    return backend.mail().waiting("default", trajectory_id)


def test_an_item_comes_back_as_it_was_posted_from_any_process(backend):
    posted = item(body={"text": "héllo \u0000 \n", "more": [1, None, {"$": "x"}]}, subject="57.0", kind="settle")
    assert backend.mail().post(posted)
    assert waiting(backend) == [posted]
    assert list(backend.mail().trajectories()) == [("default", "order-7")]


def test_posting_the_same_item_again_creates_nothing(backend):
    assert backend.mail().post(item())
    assert not backend.mail().post(item())
    assert waiting(backend) == [item()]


def test_one_id_with_other_contents_is_refused_and_the_first_stays(backend):
    backend.mail().post(item())
    with pytest.raises(MailConflict, match="m1"):
        backend.mail().post(item(body={"text": "go on"}))
    assert waiting(backend) == [item()]


def test_items_are_read_in_the_order_they_were_posted(backend):
    for mail_id, posted_at in (("b", 3), ("a", 3), ("z", 1), ("c", 2)):
        backend.mail().post(item(mail_id, posted_at=posted_at))
    assert [found.id for found in waiting(backend)] == ["z", "c", "a", "b"]


def test_a_deleted_item_is_gone_and_deleting_again_is_fine(backend):
    backend.mail().post(item())
    backend.mail().post(item("m2"))
    for _ in range(2):
        backend.mail().delete(item())
    assert [found.id for found in waiting(backend)] == ["m2"]


def test_reading_does_not_delete(backend):
    backend.mail().post(item())
    assert waiting(backend) == waiting(backend) == [item()]


def test_mail_reaches_its_own_trajectory_only(backend):
    backend.mail().post(item())
    backend.mail().post(item(trajectory_id="order-8"))
    backend.mail().post(item(tenant="other"))
    assert waiting(backend) == [item()]
    assert waiting(backend, "order-9") == []
    assert sorted(backend.mail().trajectories()) == [
        ("default", "order-7"),
        ("default", "order-8"),
        ("other", "order-7"),
    ]


@pytest.mark.parametrize("mail_id", ["", "../x", "a/b", ".hidden", "x" * 129, "a\x00", "ü"])
def test_an_id_that_is_no_plain_name_is_refused(backend, mail_id):
    with pytest.raises(MailRefused, match="mail id"):
        backend.mail().post(item(mail_id))
    assert list(backend.mail().trajectories()) == []


def test_what_no_trajectory_can_be_called_is_refused(backend):
    for fields in ({"tenant": "a/b"}, {"trajectory_id": ""}, {"trajectory_id": "x\n"}):
        with pytest.raises(InvalidId):
            backend.mail().post(item(**fields))


def test_a_body_that_is_no_json_or_too_large_is_refused_before_anything_is_written(backend):
    for body in ({"x": object()}, {"x": "y" * ITEM_MAX}):
        with pytest.raises(MailRefused, match="m1"):
            backend.mail().post(item(body=body))
    assert waiting(backend) == []


def test_of_many_posters_of_one_item_exactly_one_created_it(backend):
    created: list[bool] = []
    gate = threading.Barrier(8)

    def post() -> None:
        gate.wait()
        created.append(backend.mail().post(item()))

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == [False] * 7 + [True]
    assert waiting(backend) == [item()]
