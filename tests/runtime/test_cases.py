"""The table of cases is whole, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

WANTED = (1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 14, 15, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 30, 32, 33, 34, 35)


def test_every_case_of_the_durable_runtime_names_tests_that_are_there(project: Path) -> None:
    folder = project / "tests" / "runtime"
    rows = [line.split(" | ") for line in (folder / "CASES.md").read_text().splitlines() if line.startswith("| T")]
    assert [row[0] for row in rows] == [f"| T{number}" for number in WANTED]
    for row in rows:
        named = re.findall(r"`([\w/.]+\.py)::(\w+|\*)`", row[-1])
        assert named, row[0]
        for path, test in named:
            text = (folder / path).read_text()
            assert "\ndef test_" in text if test == "*" else f"\ndef {test}(" in text, (row[0], path, test)
