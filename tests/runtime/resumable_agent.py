"""An agent that the command line can import: `tests.runtime.resumable_agent:work` (its root by TRAJLAKE_TEST_ROOT)."""

from __future__ import annotations

import os
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open(os.environ.get("TRAJLAKE_TEST_ROOT", "journal"))
model = scripted([[("pay", {"n": 1})], "paid"])


@journal.tool
def pay(n: int) -> int:
    if os.environ.get("TRAJLAKE_TEST_FAILS"):
        raise ConnectionError("gone")
    return n


def work(t: Any) -> None:
    t.context.user("pay one")
    for turn in t.turns():
        reply = turn.model()
        turn.tools(reply.calls)
        if t.task == "stop" and os.environ.get("TRAJLAKE_TEST_STOPS"):
            raise ZeroDivisionError
        if not reply.calls:
            t.finish(reply.text)


if __name__ == "__main__":
    import sys

    from tests.runtime.resumable_agent import journal as named
    from tests.runtime.resumable_agent import model as told
    from tests.runtime.resumable_agent import work as agent

    try:
        named.run(agent, sys.argv[1], task=sys.argv[2], model=told)
    finally:
        named.close()
