"""Judgement trajectories: `judge/<verifier>/<version>/<sha256 of the batch>`, written whole, equal for equal batches.

They are written like an import: token 0, no lease, salts from what the batch holds. Two who write one batch at once
only add copies. Source: design/events.md, *Judgements*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.runtime.wal.reader import list_segments, read_segment
from trajlake.schemas.blobs import offload_payload
from trajlake.schemas.canonical_json import exact_canonical
from trajlake.schemas.chain import genesis, import_salt, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Annotated, Payload, RewardAssigned, TaskEnded, TaskStarted
from trajlake.schemas.ids import JUDGEMENT_PREFIX, check_tenant, check_trajectory_id

from .reward_files import Judged

NAME_MAX: Final = 80
"""Characters of a verifier's name, and of its version, in an id; the events hold them whole."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One judgement trajectory: its id, how many judgements, and whether the root had it already."""

    trajectory_id: str
    verifier: str
    verifier_version: str
    judgements: int
    known: bool


def write_judgements(
    root: Root, judged: Iterable[Judged], tenant: str, known_ids: Collection[tuple[str, str]] = ()
) -> list[Written]:
    """Write judgements into a root, one trajectory for each verifier and version; durable on return.

    `known_ids`: (tenant, trajectory) of what is held elsewhere already.
    """
    batches: dict[tuple[str, str, str], list[Judged]] = {}
    for one in judged:
        whose = check_tenant(one.tenant or tenant)
        check_trajectory_id(one.trajectory_id)
        batches.setdefault((whose, one.verifier, one.verifier_version), []).append(one)
    held = _known_ids(root) | set(known_ids)
    made: list[Written] = []
    writer = None
    for (whose, verifier, version), batch in sorted(batches.items()):
        ordered = _ordered(batch, whose)
        name = batch_id(ordered, whose, verifier, version)
        known = (whose, name) in held
        if not known:
            writer = writer or root.claim_writer()
            events = _events(root, ordered, whose, name)
            info = TrajectoryInfo(tenant=whose, trajectory_id=name, model="judge", started_on=_day(events[0]))
            writer.append(events, info).wait()
        made.append(
            Written(
                trajectory_id=name, verifier=verifier, verifier_version=version, judgements=len(ordered), known=known
            )
        )
    if writer is not None:
        writer.close()
    return made


def batch_id(batch: Sequence[Judged], tenant: str, verifier: str, version: str) -> str:
    """Return the id of a batch: the same judgements, in any order, have the same one."""
    tree = [msgspec.to_builtins(msgspec.structs.replace(one, tenant=one.tenant or tenant)) for one in batch]
    digest = hashlib.sha256(exact_canonical(tree)).hexdigest()
    return check_trajectory_id(f"{JUDGEMENT_PREFIX}{_part(verifier)}/{_part(version) or '-'}/{digest}", judgement=True)


def _part(text: str) -> str:
    plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in text)[:NAME_MAX]
    return plain if plain.isascii() else plain.encode("ascii", "replace").decode().replace("?", "-")


def _ordered(batch: list[Judged], tenant: str) -> list[Judged]:
    whole = {msgspec.json.encode(one): one for one in batch}
    return sorted(
        whole.values(),
        key=lambda one: (
            one.tenant or tenant, one.trajectory_id, -1 if one.sequence_number is None else one.sequence_number,
            msgspec.json.encode(one),
        ),
    )  # fmt: skip


def _events(root: Root, batch: list[Judged], tenant: str, name: str) -> list[Event]:
    start = min((one.judged_at for one in batch if one.judged_at), default=0)
    task = {"verifier": batch[0].verifier, "version": batch[0].verifier_version, "judgements": len(batch)}
    payloads: list[tuple[Payload, int]] = [(TaskStarted(task=task, origin="judgement", model="judge"), start)]
    payloads += [(_payload(one, tenant), one.judged_at or start) for one in batch]
    payloads.append((TaskEnded(status="completed"), payloads[-1][1]))
    events: list[Event] = []
    prev = genesis(tenant, name)
    batch_hash = name.rpartition("/")[2]
    for number, (payload, at) in enumerate(payloads):
        payload, blobs = offload_payload(payload)
        for blob in blobs:
            root.blobs.put(tenant, blob.data)
        event = make_event(
            payload, tenant=tenant, trajectory_id=name, sequence_number=number, fencing_token=0,
            turn=-1 if number == 0 else 0, recorded_at=at, salt=import_salt("judgement", name, batch_hash, number),
            prev=prev,
        )  # fmt: skip
        prev = event.hash
        events.append(event)
    return events


def _payload(one: Judged, tenant: str) -> Payload:
    place = {
        "tenant": one.tenant or tenant, "trajectory_id": one.trajectory_id, "sequence_number": one.sequence_number,
        "head_hash": one.head_hash, "details": one.details,
    }  # fmt: skip
    if one.value:
        return RewardAssigned(verifier=one.verifier, verifier_version=one.verifier_version, value=one.value, **place)
    return Annotated(author=one.verifier, label=one.label, text=one.text, **place)


def _day(event: Event) -> str:
    return datetime.fromtimestamp(event.recorded_at / 1_000_000, UTC).strftime("%Y-%m-%d")


def _known_ids(root: Root) -> set[tuple[str, str]]:
    return {(info.tenant, info.trajectory_id) for info in infos_of(root)}


def infos_of(root: Root) -> Iterable[TrajectoryInfo]:
    """Yield what a root's segments say of every trajectory in them; one may come more than once."""
    for writer in root.writers():
        for segment in list_segments(root.env, root.writer_folder(writer)):
            yield from read_segment(root.env, segment.path).infos.values()
