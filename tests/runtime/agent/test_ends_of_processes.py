"""A process that forks, or whose main thread ends, while an agent runs: the run ends well, nothing is held twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trajlake.runtime import Journal, Misuse
from trajlake.runtime.models import scripted

OUTLIVES_MAIN = """
import threading, time
from concurrent.futures import thread
from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")

@journal.tool(effect="local")
def write(text: str) -> str:
    open("work/note", "w").write(text)

def agent(t):
    for turn in t.turns(max=2):
        reply = turn.model()
        while not thread._shutdown:  # the main thread has ended: no pool takes work any more
            time.sleep(0.005)
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish("done")

def run():
    model = scripted([[("write", {"text": "x"})], "done"])
    print(journal.run(agent, "o", task="go", model=model, workspace="work").status)

threading.Thread(target=run).start()
"""


def test_an_agent_that_outlives_the_main_thread_ends_with_its_checkpoint_and_files(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", OUTLIVES_MAIN], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr) == ("completed\n", "")
    assert list((tmp_path / "journal/checkpoints").rglob("*.json"))


def test_a_forked_child_takes_no_lease_with_the_journal_of_its_parent(tmp_path: Path) -> None:
    def agent(t):  # type: ignore[no-untyped-def]
        t.finish("done")

    with Journal.open(tmp_path / "journal") as journal:
        assert journal.run(agent, "first", task="go", model=scripted([])).status == "completed"
        child = os.fork()
        if child == 0:
            refused = 1
            try:
                journal.run(agent, "second", task="go", model=scripted([]))
            except Misuse:
                refused = 0
            finally:
                os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert journal.run(agent, "second", task="go", model=scripted([])).status == "completed"
