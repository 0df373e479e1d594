"""Candidate rows: one segment as chat messages, with everything the stages ask about it. No policy enters here."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from trajlake.schemas.ids import trajectory_key

from .chat_shape import Chat, ShapeRefused
from .items import Reading
from .segments import Segment

JOIN: Final = b"\n"


class Candidate(msgspec.Struct):
    """One row before any stage. `train_text` is what was first asked and what its targets emitted; `call_text` the
    arguments of every call."""

    tenant: str
    trajectory_id: str
    head_hash: str
    row_key: str
    segment_no: int = -1
    error: str | None = None
    detail: str | None = None
    kind: str = ""
    purpose: str = ""
    seq_from: int = 0
    seq_to: int = 0
    is_last: bool = False
    messages: str = ""
    tools: str | None = None
    context_hashes: list[str] = []
    item_seqs: list[int] = []
    prompt_seqs: list[int] = []
    context_prompt: str = ""
    blobs: list[str] = []
    target_places: list[int] = []
    target_seqs: list[int] = []
    target_models: list[str] = []
    target_systems: list[int] = []
    target_failed: list[bool] = []
    target_bad: list[bool] = []
    token_ids: str | None = None
    logprobs: str | None = None
    stop_reason: str = ""
    system_sha: str = ""
    tools_sha: str = ""
    template_sha: str = ""
    tokenizer_sha: str = ""
    prompt_characters: int = 0
    surrogates: int = 0
    is_text: bool = True
    malformed: str | None = None
    unshown_tool: str | None = None
    loop_repeats: int = 0
    train_text: str = ""
    call_text: str = ""


def row_key_of(tenant: str, trajectory_id: str) -> str:
    """Return the 32 hex digits that every row of a trajectory begins its id with."""
    return trajectory_key(tenant, trajectory_id).hex()


def failed(tenant: str, trajectory_id: str, head_hash: str, error: str, detail: str) -> Candidate:
    """Return the row that stands for a trajectory out of which no segment can be made."""
    key = row_key_of(tenant, trajectory_id)
    return Candidate(tenant, trajectory_id, head_hash, key, error=error, detail=detail[:500])


def candidate(tenant: str, trajectory_id: str, head_hash: str, reading: Reading, segment: Segment) -> Candidate:
    """Return the candidate row of one segment; with `error` set where its messages cannot be said as a chat."""
    row = Candidate(tenant, trajectory_id, head_hash, row_key_of(tenant, trajectory_id), segment.number)
    row.kind, row.purpose = segment.kind, segment.purpose
    head = segment.head
    row.system_sha, row.tools_sha, row.template_sha, row.tokenizer_sha = (
        head.system, head.tools, head.template, head.tokenizer,
    )  # fmt: skip
    try:
        _fill(row, reading, segment)
    except ShapeRefused as refused:
        row.error, row.detail = "shape", str(refused)
    return row


def _fill(row: Candidate, reading: Reading, segment: Segment) -> None:
    from .tools_shape import system_message, tool_list, tool_names

    chats: list[Chat] = []
    if row.system_sha and row.system_sha in reading.heads:
        chats.append(system_message(reading.heads[row.system_sha]))
    row.tools = tool_list(reading.heads.get(row.tools_sha)) if row.tools_sha else None
    for place, ref in enumerate(segment.refs):
        reply = segment.targets.get(place)
        if reply is not None:
            row.target_places.append(len(chats))
        chats += reading.render(ref)
    row.context_hashes = segment.hashes
    row.item_seqs = [ref for ref in segment.refs if isinstance(ref, int)]
    found = [reading.heads_at.get(digest, -1) for digest in (row.system_sha, row.tools_sha)]
    stored = [seq for seq in found if seq >= 0]
    row.item_seqs += [seq for seq in stored if seq not in row.item_seqs]
    row.prompt_seqs = [ref for ref in segment.refs[: min(segment.targets)] if isinstance(ref, int)] + stored
    row.context_prompt = hashlib.sha256(b"\n".join(chat.text for chat in chats[: row.target_places[0]])).hexdigest()
    row.seq_from, row.seq_to = min(row.item_seqs), max(row.item_seqs)
    row.blobs = sorted(reading.blobs_of(segment.refs))
    _targets(row, reading, segment, chats)
    _measure(row, chats)
    row.malformed = structure(chats)
    if row.target_places[0] == 0 and row.malformed is None:
        row.malformed = "message 0: a reply to nothing: what it was asked is not recorded"
    if row.tools is not None:
        shown = tool_names(row.tools)
        row.unshown_tool = next((c.tool for one in chats for c in one.calls if c.tool not in shown), None)
    row.messages = (b"[" + b",".join(chat.text for chat in chats) + b"]").decode()


def _targets(row: Candidate, reading: Reading, segment: Segment, chats: list[Chat]) -> None:
    asked = [chat.text for chat in chats[: row.target_places[0]]]
    spoken: list[bytes] = [row.tools_sha.encode(), *asked]
    ids, probabilities = {}, {}
    for place, reply in zip(row.target_places, segment.targets.values(), strict=True):
        chat = chats[place]
        row.target_seqs.append(reply.seq)
        row.target_models.append(reply.model)
        row.target_systems.append(reply.system_no)
        row.target_failed.append(reply.seq in reading.failed)
        spoken.append(chat.spoken)
        is_bad = False
        for call in chat.calls:
            is_bad = is_bad or not is_object(call.arguments)
            spoken += [call.tool.encode(), call.arguments.encode("utf-8", "replace")]
        row.target_bad.append(is_bad)
        if reply.token_ids is not None:
            ids[str(place)] = _whole(reading, reply.token_ids)
        if reply.logprobs is not None:
            probabilities[str(place)] = _whole(reading, reply.logprobs)
        row.stop_reason = reply.stop_reason
    row.token_ids = msgspec.json.encode(ids).decode() if ids else None
    row.logprobs = msgspec.json.encode(probabilities).decode() if probabilities else None
    row.train_text = JOIN.join(spoken).decode("utf-8", "replace")


def _whole(reading: Reading, tree: Any) -> Any:
    from trajlake.schemas.blobs import inline

    return inline(tree, reading.fetch)


def _measure(row: Candidate, chats: list[Chat]) -> None:
    row.prompt_characters = sum(len(chat.text) for chat in chats[: row.target_places[0]])
    arguments: list[str] = []
    before: tuple[str, str] | None = None
    run = 0
    for chat in chats:
        row.surrogates += chat.surrogates
        row.is_text &= chat.is_text
        for call in chat.calls:
            arguments.append(call.arguments)
            run = run + 1 if before == (call.tool, call.arguments) else 1
            before = call.tool, call.arguments
            row.loop_repeats = max(row.loop_repeats, run)
    row.call_text = "\n".join(arguments)


def is_object(arguments: str) -> bool:
    """Return whether a call's arguments are a JSON object, as every tool expects."""
    if arguments == "{}":
        return True
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def structure(chats: list[Chat]) -> str | None:
    """Return what is wrong with the order of roles and the pairing of calls and answers; None if nothing is.

    Calls of the last reply may be unanswered: the row ends with it. Every other call has exactly one answer, by id
    and before the next reply, and nothing answers what was not asked.
    """
    waiting: list[str] = []
    for place, chat in enumerate(chats):
        if chat.role == "tool":
            if chat.call_id not in waiting:
                return f"message {place}: answers no open call"
            waiting.remove(chat.call_id)
            continue
        if waiting:
            return f"message {place}: {len(waiting)} calls before it have no answer"
        if chat.role == "assistant":
            waiting = [call.call_id for call in chat.calls]
            if not chat.calls and chat.spoken in (b"", b"null", b'""') and b"reasoning_content" not in chat.text:
                return f"message {place}: an empty reply"
    return None
