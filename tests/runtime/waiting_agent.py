"""An agent whose jobs others answer later: `tests.runtime.waiting_agent:work` (its root by TRAJLAKE_TEST_ROOT)."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open(os.environ.get("TRAJLAKE_TEST_ROOT", "journal"))
model = scripted([[("build", {"what": "x"}), ("build", {"what": "y"})], "built"])


@journal.tool(asynchronous=True, deadline_s=float(os.environ.get("TRAJLAKE_TEST_DEADLINE_S", "3600")))
def build(what: str) -> None:
    with open(os.environ["TRAJLAKE_TEST_QUEUE"], "a") as queue:
        queue.write(f"{what}\n")
    if os.environ.get("TRAJLAKE_TEST_DIES") == what:
        _wait_for_the_other_job()
        os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_the_other_job() -> None:
    """The two are handed over side by side: the process dies once both are in the queue."""
    for _ in range(3000):
        with open(os.environ["TRAJLAKE_TEST_QUEUE"]) as queue:
            if len(queue.read().split()) == 2:
                return
        time.sleep(0.01)


def work(t: Any) -> None:
    t.context.user("build two things")
    for turn in t.turns():
        reply = turn.model()
        t.vars["outputs"] = [one.output for one in turn.tools(reply.calls)] or t.vars["outputs"]
        if not reply.calls:
            t.finish(t.vars["outputs"])


if __name__ == "__main__":
    import sys

    from tests.runtime.waiting_agent import journal as named
    from tests.runtime.waiting_agent import model as told
    from tests.runtime.waiting_agent import work as agent

    try:
        named.run(agent, sys.argv[1], task="go", model=told)
    finally:
        named.close()
