"""Wrong: a tool that is declared local posts what it wrote to a service (whose port is in SHOP_PORT)."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("publish", {"text": "hello"})], "done"])


@journal.tool(effect="local")
def publish(text: str) -> int:
    Path("work/page.txt").write_text(text)
    url = f"http://127.0.0.1:{os.environ['SHOP_PORT']}/pages"
    with urllib.request.urlopen(url, data=text.encode(), timeout=10) as answer:
        return int(answer.status)


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)
