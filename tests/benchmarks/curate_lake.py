"""A synthetic lake for the curation benchmark: agent runs with real chained events, landed and compacted."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from tests.pipelines.segments import Landed, Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.schemas.context import ITEMS_START, context_hash, extend_items_hash, item_hash
from trajlake.schemas.events import (
    Authorized,
    ContextBuilt,
    ContextHead,
    MessageAdded,
    ModelReplied,
    ProposedCall,
    TaskEnded,
    TaskStarted,
    ToolIntent,
    ToolResult,
)

TRAJECTORIES_PER_SEGMENT = 400
_BEGINNINGS = ("re", "un", "over", "sub", "inter", "pre")
_ENDS = ("load", "file", "test", "node", "path", "cache", "query", "index", "state", "token", "write", "parse")
WORDS = [first + last for first in _BEGINNINGS for last in _ENDS]
PARAMETERS = (("bash", "command"), ("read", "path"), ("search", "query"))
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": {
        "type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}}
    for name, key in PARAMETERS
]  # fmt: skip


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def story(number: int, turns: int, night: int = 1) -> Story:
    """Return one run: a task, `turns` turns of five events each, an end."""
    rng = random.Random(f"{night} {number}")
    made = Story(f"night{night}-{number:06d}", tenant="default", model="policy-7b", version="r3")
    task = {"task_id": f"{night}-{number // 2}", "text": words(rng, 8)}
    made.add(TaskStarted(task=task, model="policy-7b", model_version="r3"))
    running, items, built_at, built_keep = ITEMS_START, [], None, 0
    head = ContextHead(tools=hashlib.sha256(b"tools").hexdigest())
    for role, text in (("system", "You solve tasks in a repository. " + words(rng, 60)), ("user", words(rng, 40))):
        wire = {"role": role, "content": text}
        digest = item_hash(wire)
        items.append(len(made.landed))
        running = extend_items_hash(running, (digest,))
        made.add(MessageAdded(role=role, wire=wire, item_hash=digest))
    for turn in range(turns):
        made.turn = turn
        stored = {head.tools: TOOLS} if turn == 0 else {}
        built = len(made.landed)
        made.add(ContextBuilt(context_hash=context_hash(head, running), base=built_at, keep=built_keep,
                              append=tuple(items[built_keep:]), head=head, stored=stored))  # fmt: skip
        built_at, built_keep = built, len(items)
        name, key = PARAMETERS[rng.randrange(3)]
        arguments = json.dumps({key: words(rng, 6)})
        call_id = f"call_{number}x{turn}"
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        reply = {"role": "assistant", "content": words(rng, 30), "tool_calls": [call]}
        digest = item_hash(reply)
        seq = len(made.landed)
        proposed = ProposedCall(tool=name, provider_id=call_id, pointer="/tool_calls/0/function/arguments")
        made.add(ModelReplied(raw=json.dumps(reply), format="openai.chat/1", context=built, item_hash=digest,
                              served_model="policy-7b", calls=(proposed,)))  # fmt: skip
        items.append(seq)
        running = extend_items_hash(running, (digest,))
        action, zeros = f"{seq}.0", "0" * 64
        made.add(Authorized(action_id=action, tool=name, decision="allow", arguments_hash=zeros))
        intent = hashlib.sha256(f"{number} {seq}".encode()).hexdigest()
        made.add(ToolIntent(action_id=action, tool=name, arguments_hash=zeros, key=intent, effect="local", reply=seq))
        output = words(rng, 60)
        digest = item_hash({"role": "tool", "tool_call_id": call_id, "content": output})
        items.append(len(made.landed))
        running = extend_items_hash(running, (digest,))
        made.add(ToolResult(action_id=action, status="ok", tool=name, provider_id=call_id, output=output,
                            item_hash=digest))  # fmt: skip
    made.add(TaskEnded(status="completed"))
    return made


def segment(writer: bytes, first_lsn: int, numbers: range, turns: int, night: int, landing: str) -> int:
    landed: list[Landed] = []
    for number in numbers:
        landed += story(number, turns, night).landed
    land(Path(landing), writer, first_lsn, landed)
    return len(landed)


def grow(folder: Path, count: int, turns: int, night: int = 1, workers: int = 2) -> tuple[str, int]:
    """Land `count` runs of a night and compact them; return the lake and how many events it gained."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    landing, lake = folder / "landing", folder / "lake"
    tasks = []
    for first in range(0, count, TRAJECTORIES_PER_SEGMENT):
        numbers = range(first, min(count, first + TRAJECTORIES_PER_SEGMENT))
        writer = hashlib.sha256(f"{night} {first}".encode()).digest()[:16]
        tasks.append((writer, 0, numbers, turns, night, str(landing)))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        events = sum(pool.map(segment, *zip(*tasks, strict=True)))
    report = compact(str(landing), str(lake))
    assert report.outcome == "committed", report
    return str(lake), events
