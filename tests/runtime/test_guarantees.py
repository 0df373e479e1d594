"""The table of guarantees names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HAPPENS = (
    "process is killed", "system crashes", "power is lost", "disk is full", "a sync fails", "bits rot", "two workers",
    "host is lost", "SIGTERM",
)  # fmt: skip


def test_every_guarantee_names_a_test_that_is_there(project: Path) -> None:
    page = (project / "runtime" / "README.md").read_text()
    table = page.partition("## What holds, and which test proves it")[2].partition("**Checkpoints**")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| what happens")]
    happenings = [row.split("|")[1].strip() for row in rows]
    for happens in HAPPENS:
        assert any(happens in one for one in happenings), happens
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert named, row
        for path in named:
            assert "\ndef test_" in (project / path).read_text(), path
