"""Checks the hash chain of a root: the rules that `verify` runs over a lake, over journals, by `schemas.chain`.

A journal keeps no ledger of erasures: it holds no erased event. Trajectories are read in groups, so that memory
stays bounded whatever the root holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalError, SegmentCorrupt
from trajlake.runtime.wal.reader import iter_events
from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.chain import Finding
from trajlake.schemas.chain import verify as verify_chain
from trajlake.schemas.history import History, canonical

from .verify import NO_ANCHOR, RuleResult, Violation

if TYPE_CHECKING:
    from trajlake.schemas.envelope import Event

    from .audit_session import AnchorFile

GROUP_BYTES_MAX: Final = 256 << 20
"""Payload bytes of the trajectories that are held in memory together."""
EVENT_BYTES: Final = 1_000
"""What an event costs in memory besides its payload, about."""
Key = tuple[str, str]


class _Found:
    """Violations by rule; every one is counted, the first are kept."""

    def __init__(self, rules: Sequence[str], shown_max: int) -> None:
        self.counts = dict.fromkeys(rules, 0)
        self.shown: dict[str, list[Violation]] = {rule: [] for rule in rules}
        self.shown_max = shown_max

    def add(self, rule: str, violation: Violation) -> None:
        self.counts[rule] += 1
        if len(self.shown[rule]) < self.shown_max:
            self.shown[rule].append(violation)

    def result(self, rule: str, note: str = "") -> RuleResult:
        count = self.counts[rule]
        return RuleResult(rule, "findings" if count else "pass", count, sorted(self.shown[rule]), note)


def verify_root(
    root: Root,
    *,
    tenant: str | None = None,
    shown_max: int = 100,
    anchors: Sequence[AnchorFile] = (),
    blobs: bool = False,
) -> list[RuleResult]:
    """Run every rule over `root`, beside live writers if need be. Damage to a segment is a finding of `gap`."""
    found = _Found(("chain", "gap", "payload", "payload_missing", "truncated", "blobs"), shown_max)
    heads = _anchored(anchors, tenant)
    seen_blobs: set[tuple[str, str]] = set()
    for key, events in _trajectories(root, tenant, found):
        history = canonical(events)
        for finding in _findings(history):
            found.add(finding.kind, Violation(*key, finding.sequence_number, finding.detail))
        _check_heads(key, history, heads.pop(key, {}), found)
        if blobs:
            _check_blobs(root, key, history.events, seen_blobs, found)
    results = [found.result(rule) for rule in ("chain", "gap", "payload", "payload_missing")]
    if anchors:
        note = f"{len(heads)} anchored trajectories are not in this root" if heads else ""
        results.append(found.result("truncated", note))
    else:
        results.append(RuleResult("truncated", "not applicable", 0, [], NO_ANCHOR.replace("this lake", "this root")))
    return [*results, found.result("blobs", f"{len(seen_blobs)} blobs read")] if blobs else results


def _findings(history: History) -> Iterator[Finding]:
    yield from verify_chain(history.events)
    if history.held_back:
        first = history.held_back[0].sequence_number
        yield Finding("gap", first, f"{len(history.held_back)} events wait for an event or an opening that is missing")
    for event in history.conflicts:
        yield Finding("chain", event.sequence_number, "another event under a used number and token")


def _check_heads(key: Key, history: History, heads: dict[int, str], found: _Found) -> None:
    if not heads:
        return
    present = {(event.sequence_number, event.hash.hex()) for event in (*history.events, *history.superseded)}
    for number, digest in sorted(heads.items()):
        if (number, digest) not in present:
            found.add(
                "truncated", Violation(*key, number, f"anchored as the end, with hash {digest[:16]}..., and absent")
            )


def _check_blobs(root: Root, key: Key, events: Sequence[Event], seen: set[tuple[str, str]], found: _Found) -> None:
    for event in events:
        if event.payload is None:
            continue
        for digest in blob_hashes(event.type, event.payload):
            if (event.tenant, digest) in seen:
                continue
            seen.add((event.tenant, digest))
            try:
                root.blobs.get(event.tenant, digest)
            except JournalError as error:
                found.add("blobs", Violation(*key, event.sequence_number, str(error)))


def _anchored(anchors: Sequence[AnchorFile], tenant: str | None) -> dict[Key, dict[int, str]]:
    heads: dict[Key, dict[int, str]] = defaultdict(dict)
    for anchor in anchors:
        if tenant in (None, anchor.tenant):
            for trajectory_id, number, digest, *_ in msgspec.json.decode(anchor.document)["heads"]:
                heads[anchor.tenant, trajectory_id][number] = digest
    return dict(heads)


def _trajectories(root: Root, tenant: str | None, found: _Found) -> Iterator[tuple[Key, list[Event]]]:
    """Yield every trajectory with all its events, of all writers, in groups that fit into memory."""
    sizes: dict[Key, int] = defaultdict(int)
    for event in _all_events(root, found):
        sizes[event.tenant, event.trajectory_id] += len(event.payload or b"") + EVENT_BYTES
    for group in _groups({key: size for key, size in sizes.items() if tenant in (None, key[0])}):
        events: dict[Key, list[Event]] = {key: [] for key in group}
        for event in _all_events(root, None):
            if (event.tenant, event.trajectory_id) in events:
                events[event.tenant, event.trajectory_id].append(event)
        for key in group:
            yield key, events.pop(key)


def _groups(sizes: dict[Key, int]) -> Iterator[list[Key]]:
    group: list[Key] = []
    total = 0
    for key in sorted(sizes):
        if group and total + sizes[key] > GROUP_BYTES_MAX:
            yield group
            group, total = [], 0
        group.append(key)
        total += sizes[key]
    if group:
        yield group


def _all_events(root: Root, found: _Found | None) -> Iterator[Event]:
    for writer in root.writers():
        try:
            yield from iter_events(root.env, root.writer_folder(writer))
        except SegmentCorrupt as error:
            if found is not None:
                found.add("gap", Violation("", f"writer {writer}", -1, str(error)))
