"""Tells the main job step by step, with real processes; every claim it prints is checked before it is printed.

How it fails: a step whose outcome is not as promised raises `UserError` (exit 3) naming the step and where the files
stand; nothing outside the demo's folder is touched, and a folder that is not a demo's is refused.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

from .fulfilment import ORDERS
from .shop import Shop

MARKER: Final = ".trajlake-demo"
FIRST, *CROWD = ORDERS
STEP_TIMEOUT_S: Final = 90.0

WHAT_HAPPENED: Final = f"""
select sequence_number as seq, turn, event_type, coalesce(payload ->> 'tool', payload ->> 'how') as what
from events
where trajectory_id = '{FIRST}' and event_type in
    ('TaskStarted', 'ToolIntent', 'ToolResult', 'LeaseAcquired', 'Resumed', 'ToolSettled', 'TaskEnded')
order by sequence_number"""
CHARGES: Final = """
select tool, stage, settled_how, count(*) as actions, count(distinct idempotency_key) as keys
from tool_calls group by all order by all"""
USAGE: Final = "select * exclude (tenant, system_no) from usage_by_model_day"


class Story:
    """One telling of the demo in `folder`."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder, say

    def tell(self) -> None:
        """Run every step, in order. Raises `UserError` when a step does not come out as promised."""
        prepare(self.folder)
        shop = Shop()
        try:
            self._killed_and_resumed(shop)
            self._crowd(shop)
        finally:
            shop.close()
        self._to_the_lake()
        self._close()

    def _killed_and_resumed(self, shop: Shop) -> None:
        self.say(f"1. An agent fulfils {FIRST}: it reads the order, charges it, writes a receipt.")
        self._kill_after_charge(shop)
        charged = shop.charges_of(FIRST)
        self.say("   SIGKILL, after the shop charged and before the journal knew: the intent is on disk, the result")
        self.say(f"   is not. The shop's books: {charged} charge. Nobody else can know whether it happened.")
        self.say("")
        self.say("2. A second process takes over, finds the charge in doubt and settles it with the same key.")
        outcome = self._worker(shop, FIRST)[0]
        self._must(outcome["status"] == "completed", f"{FIRST} ended as {outcome['status']}, not completed")
        self._must(shop.charges_of(FIRST) == 1, f"the shop charged {FIRST} {shop.charges_of(FIRST)} times")
        self.say(f"   {outcome['result']}")
        self.say(f"   The shop was asked {shop.requests} times and charged {shop.charges_of(FIRST)} time.")
        self.say("")

    def _kill_after_charge(self, shop: Shop) -> None:
        command = [*_python("trajlake.pipelines.demo.worker"), str(self.folder), shop.url, FIRST, "--stall"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout is not None
            said = agent.stdout.readline()
            agent.kill()
        self._must(said == "charged\n", "the first agent died before it charged")
        self._must(shop.charges_of(FIRST) == 1, "the shop holds no charge after the kill")

    def _crowd(self, shop: Shop) -> None:
        self.say(f"3. {len(CROWD)} more agents run concurrently in one process; one disk barrier serves many events.")
        outcomes = self._worker(shop, *CROWD)
        done = sum(outcome["status"] == "completed" for outcome in outcomes)
        self._must(done == len(CROWD), f"{len(CROWD) - done} of {len(CROWD)} agents did not complete")
        self._must(len(shop.charges) == len(ORDERS), f"{len(shop.charges)} charges for {len(ORDERS)} orders")
        self.say(f"   {done} completed; the shop's books hold {len(shop.charges)} charges for {len(ORDERS)} orders.")
        self.say("")

    def _to_the_lake(self) -> None:
        journal, landing, lake = (str(self.folder / name) for name in ("journal", "landing", "lake"))
        self.say("4. Ship the sealed segments, then compact them into Delta tables (Apache Beam, in process).")
        self._verb("ship", journal, "--to", landing)
        self._verb("compact", "--landing", landing, "--lake", lake)
        self.say("")
        self.say("5. Ask. What happened to the killed one:")
        self._verb("sql", "--lake", lake, WHAT_HAPPENED)
        self.say("   Every action, and how it came to rest:")
        self._verb("sql", "--lake", lake, CHARGES)
        self._verb("sql", "--lake", lake, USAGE)
        self.say("6. Is every row what was written, in order, without a gap?")
        self._verb("verify", "--lake", lake)
        self.say("")

    def _close(self) -> None:
        self.say(f"Everything is in {self.folder}: journal/, landing/, lake/, workspace/.")
        self.say("Now your own sessions, into a lake you can query:")
        self.say("    trajlake import auto ~/.claude/projects --lake ./lake && trajlake sql --lake ./lake")

    def _worker(self, shop: Shop, *orders: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*_python("trajlake.pipelines.demo.worker"), str(self.folder), shop.url, *orders],
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        lines = done.stdout.splitlines()
        self._must(len(lines) == len(orders), f"the worker stopped: {_last_line(done.stderr)}")
        return [msgspec.json.decode(line) for line in lines]

    def _verb(self, *words: str) -> None:
        """Show a command as the reader would type it, run it, show what it prints."""
        typed = " ".join(_as_typed(word) for word in words)
        self.say(f"   $ trajlake {typed}")
        done = subprocess.run(
            [*_python("trajlake.runtime"), *words], capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
        )
        for line in done.stdout.rstrip().splitlines():
            self.say(f"   {line}".rstrip())
        self._must(done.returncode == 0, f"trajlake {words[0]} ended with {done.returncode}: {_last_line(done.stderr)}")

    def _must(self, held: bool, otherwise: str) -> None:
        if not held:
            raise UserError(f"demo: {otherwise}; its files are in {self.folder}", exit_code=EXIT_COULD_NOT_RUN)


def prepare(folder: Path) -> None:
    """Make the demo's folder anew. Raises `UserError` for a folder that holds anything but an earlier demo."""
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARKER).exists()):
            raise UserError(f"{folder}: exists and is no earlier demo; name another folder with --dir")
        shutil.rmtree(folder)
    (folder / "workspace" / "orders").mkdir(parents=True)
    (folder / MARKER).touch()
    for order, cents in ORDERS.items():
        text = msgspec.json.encode({"order": order, "cents": cents})
        (folder / "workspace" / "orders" / f"{order}.json").write_bytes(text)


def _as_typed(word: str) -> str:
    """Quote `word` for a shell; SQL reads best in double quotes, and this SQL holds nothing they would expand."""
    return '"' + " ".join(word.split()) + '"' if "select " in word else shlex.quote(word)


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no word on stderr"])[-1]
