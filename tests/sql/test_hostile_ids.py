"""Every control on ids that mean harm: quotes, semicolons, comments, JSON, patterns, parameters and marks of direction.

The second fixture is told once more under such ids, and each control finds what it finds under plain ones.
"""

from __future__ import annotations

from typing import Any

import pytest

import tests.sql.audit_layout as layout
from tests.sql.audit_layout import SCOPE_ALL, SCOPE_NARROW, found_by, load, narrow
from tests.sql.audit_story import Story
from tests.sql.test_audits import differing
from trajlake.pipelines.audit.audit_controls import controls
from trajlake.pipelines.audit.audit_session import Session
from trajlake.schemas.ids import check_trajectory_id

HARM = "'; drop table events; --\"]}\\%_$1 {} /*\u202eé\u2028"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_control_finds_the_same_under_ids_that_mean_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(name: str, **more: Any) -> Story:
        return Story(check_trajectory_id(name + HARM), **more)

    monkeypatch.setattr(layout, "Story", hostile)
    laid = layout.laid_out.__wrapped__()
    selected = list(controls().values())
    with Session(SCOPE_ALL, memory_limit="1GiB") as session:
        load(session, laid)
        session.build_facts(selected)
        assert differing(found_by(session, selected), laid.everywhere) == []
        narrow(session, SCOPE_NARROW)
        assert differing(found_by(session, selected), laid.in_scope) == []
        assert session.count("events") == len(laid.tables["events"]), "nothing was dropped"
    plain = {place[2] for place in laid.everywhere} - {"the lake"}
    assert plain
    assert all(HARM in name for name in plain)
