"""Wrong: makes a lock of its own when it begins, and finds it there when it is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted(["done"])


def agent(t: Any) -> None:
    Path("lock").touch(exist_ok=False)
    for turn in t.turns(max=3):
        t.finish(turn.model().text)
