"""Schema versions: reading upcasts without touching what is stored; resuming is stricter and says why."""

from __future__ import annotations

import copy

import pytest

from trajlake.schemas.errors import InvalidEvent, UnknownVersion
from trajlake.schemas.versions import CURRENT_SCHEMA_VERSION, Body, check_readable, readable, resumable, upcast


def test_a_newer_version_is_refused_naming_both() -> None:
    newer = CURRENT_SCHEMA_VERSION + 1
    with pytest.raises(UnknownVersion, match=rf"version {newer}.*up to {CURRENT_SCHEMA_VERSION}.*upgrade"):
        check_readable("ToolResult", newer)
    assert not readable("ToolResult", newer)


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_existed_is_no_event(version: int) -> None:
    with pytest.raises(InvalidEvent, match="reads from 1 on"):
        check_readable("ToolResult", version)


def test_the_current_version_reads_as_it_stands() -> None:
    body: Body = {"action_id": "1.0"}
    assert upcast("ToolResult", CURRENT_SCHEMA_VERSION, body) is body
    check_readable("ToolResult", CURRENT_SCHEMA_VERSION)


def test_an_old_payload_takes_every_step_and_the_stored_one_stays() -> None:
    steps = {
        ("ToolResult", 1): lambda body: {**body, "seconds": body["ms"] / 1000},
        ("ToolResult", 3): lambda body: {**body, "fourth": True},
        ("TaskEnded", 1): lambda body: {},
    }
    stored: Body = {"ms": 1500}
    before = copy.deepcopy(stored)
    assert upcast("ToolResult", 1, stored, current=4, steps=steps) == {"ms": 1500, "seconds": 1.5, "fourth": True}
    assert upcast("ToolResult", 2, stored, current=4, steps=steps) == {"ms": 1500, "fourth": True}
    assert stored == before


def test_resuming_names_the_reason_either_way() -> None:
    assert resumable(CURRENT_SCHEMA_VERSION).ok
    newer = resumable(CURRENT_SCHEMA_VERSION + 1)
    assert not newer.ok
    assert "upgrade trajlake" in newer.reason
    older = resumable(0)
    assert not older.ok
    assert "not declared compatible" in older.reason
