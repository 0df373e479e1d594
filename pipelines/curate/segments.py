"""Context segments: maximal stretches of model calls whose prompts extend each other. The unit of a training row.

Each kept reply is in exactly one segment's targets. A reply whose prompt extends an open segment (same system, tools,
template and tokenizer) grows it; any other opens a new one, which must have a declared cause: a compaction, a
roll-back, a branch, a resume, drift, another head, or another purpose than `act`. A break without one is
`UndeclaredDiscontinuity`: an error, not a segment. Contents are compared by item hash, never by length.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from trajlake.schemas.events import Ref

from .items import Head, Reading, Reply

SUMMARY_PURPOSES: Final = frozenset({"compact", "compaction", "summarize", "summarise", "summary"})


class UndeclaredDiscontinuity(Exception):
    """A prompt that does not extend what the model saw before, and no event that says why."""


class Segment(msgspec.Struct):
    """`refs` are the items in order, replies included; `targets` the place of each reply that trains here."""

    number: int
    kind: str
    purpose: str
    head: Head
    refs: list[Ref]
    hashes: list[str]
    targets: dict[int, Reply]
    built: Ref | None = None
    prompt_length: int = 0


def cut(reading: Reading, *, imports_are_cut: bool = False) -> list[Segment]:
    """Return the segments of a trajectory in the order of their first reply. Raises `UndeclaredDiscontinuity`.

    `imports_are_cut`: an import may break a prefix without saying why (its source is a tree of records).
    """
    segments: list[Segment] = []
    last_act: int | None = None
    for reply in reading.replies:
        found = _grow_fast(segments, reading, reply) or _grow(segments, reading, reply)
        if found is None:
            _check_declared(reading, reply, segments, last_act, imports_are_cut)
            segments.append(_open(len(segments), reading, reply))
        if reply.purpose == "act":
            last_act = reply.seq
    return segments


def _grow_fast(segments: list[Segment], reading: Reading, reply: Reply) -> Segment | None:
    """Grow a segment without listing its items: the context says itself that it extends that segment's last one."""
    built = None if reply.context is None else reading.appends.get(reply.context)
    if built is None or built.base is None or not built.append:
        return None
    for segment in reversed(segments):
        if (
            segment.built == built.base
            and built.keep == segment.prompt_length
            and built.append[0] == segment.refs[-1]
            and segment.head == reply.head
        ):
            new = list(built.append[1:])
            segment.refs += new
            segment.hashes += [_hash(reading, ref) for ref in new]
            _target(segment, reading, reply)
            return segment
    return None


def _grow(segments: list[Segment], reading: Reading, reply: Reply) -> Segment | None:
    if reply.context is None:
        return None
    refs = reading.builds.items(reply.context)
    hashes = [_hash(reading, ref) for ref in refs]
    fitting = [
        one
        for one in segments
        if one.head == reply.head
        and len(one.hashes) <= len(hashes)
        and one.hashes[-1] == hashes[len(one.hashes) - 1]  # cheap, and nearly always decides
        and hashes[: len(one.hashes)] == one.hashes
    ]
    if not fitting:
        return None
    segment = max(fitting, key=lambda one: (len(one.hashes), one.number))
    segment.refs[len(segment.refs) :] = refs[len(segment.refs) :]
    segment.hashes = hashes
    _target(segment, reading, reply)
    return segment


def _open(number: int, reading: Reading, reply: Reply) -> Segment:
    refs = [] if reply.context is None else reading.builds.items(reply.context)
    kind = "main"
    if reply.purpose in SUMMARY_PURPOSES:
        kind = "compaction_summary"
    elif reply.purpose != "act" or reading.is_subagent:
        kind = "subagent"
    segment = Segment(
        number=number, kind=kind, purpose=reply.purpose, head=reply.head, refs=refs,
        hashes=[_hash(reading, ref) for ref in refs], targets={},
    )  # fmt: skip
    _target(segment, reading, reply)
    return segment


def _target(segment: Segment, reading: Reading, reply: Reply) -> None:
    segment.built = reply.context
    segment.prompt_length = len(segment.refs)
    segment.targets[len(segment.refs)] = reply
    segment.refs.append(reply.seq)
    segment.hashes.append(_hash(reading, reply.seq))


def _check_declared(
    reading: Reading, reply: Reply, segments: list[Segment], last_act: int | None, imports_are_cut: bool
) -> None:
    if not segments or reply.purpose != "act" or last_act is None or (imports_are_cut and not reading.live):
        return
    if reply.head not in {one.head for one in segments}:
        return
    declared = bisect_right(reading.breaks, last_act) != bisect_right(reading.breaks, reply.seq)
    if not declared:
        raise UndeclaredDiscontinuity(
            f"the context of reply {reply.seq} does not extend that of reply {last_act}, and no event between says why"
        )


def _hash(reading: Reading, ref: Ref) -> str:
    item = reading.items.get(ref)
    return f"missing {ref}" if item is None else item.hash or f"item {ref}"
