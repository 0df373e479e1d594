"""Variants whose breach lies in tables rather than in a history: tampering, secrets, retention, exports, contexts."""

from __future__ import annotations

import json
from typing import Any

from tests.sql.audit_story import Story, blob, blob_hash, digest, minute
from tests.sql.audit_variants import DAY_MINUTES, NOW, Found, own, said, variant, when
from tests.sql.audit_variants_tenures import take_over
from trajlake.schemas.events import Compacted, VarSet


def secret(s: Story, number: int | None = None, name: str = "", kind: str = "jwt") -> None:
    """A finding of the scanner, at an event or in a blob."""
    row: dict[str, Any] = {"kind": kind, "offset_hash": digest(kind), "scanner_version": "1"}
    if number is None:
        row["sha256"] = blob_hash(own(s, name))
    else:
        row |= {"trajectory_id": s.trajectory_id, "sequence_number": number}
    s.ledger.append(("secrets", row))


def stored(s: Story, name: str) -> None:
    row = {"sha256": blob_hash(own(s, name)), "bytes": 1, "stored_bytes": 1, "path": f"cas/{name}", "run": 1}
    s.ledger.append(("blobs", row))


def read(s: Story, output: Any = "x") -> int:
    """A tool's output that enters the context."""
    action = f"{s.next}.9"
    s.intend(action, effect="read")
    number = s.result(action, output=output)
    s.show(number)
    return number


@variant()
def q13_kept_in_sight(s: Story, bad: bool) -> Found:
    said(s)
    number = read(s)
    s.think()
    s.add(Compacted(summary="s", keep=1 if bad else 2))
    secret(s, number)
    return when(bad, "Q13", number)


@variant()
def q13_turns(s: Story, bad: bool) -> Found:
    s.turn = 2
    number = read(s)
    s.add(Compacted(summary="s", turns=(1, 2) if bad else (3, 4)))
    s.add(Compacted(summary="s", turns=(0, 1)))
    secret(s, number)
    return when(bad, "Q13", number)


@variant()
def q13_order_and_type(s: Story, bad: bool) -> Found:
    first = read(s)
    if bad:
        s.add(Compacted(summary="s"))
    else:
        secret(s, said(s))
        s.add(Compacted(summary="s", turns=(7, 8)))
    s.turn = 1
    later = read(s)
    secret(s, first)
    secret(s, later)
    return when(bad, "Q13", first)


@variant()
def q13_blob_kept(s: Story, bad: bool) -> Found:
    s.at = NOW - 150 * DAY_MINUTES
    number = read(s, blob(own(s, "b")))
    s.at = 5
    s.add(Compacted(summary="s"))
    if bad:
        stored(s, "b")
    secret(s, name="b")
    return when(bad, "Q13", number)


@variant()
def q13_payload_gone(s: Story, bad: bool) -> Found:
    number = read(s)
    s.add(Compacted(summary="s"))
    secret(s, number)
    if bad:
        return [("Q13", number)]
    s.edits.append((number, {"payload": None}))
    return [("Q16a", number), ("Q03", number)]


@variant()
def q14_summary(s: Story, bad: bool) -> Found:
    said(s)
    s.think()
    reply = s.next - 1
    s.think()
    other = s.next - 1
    number = s.add(Compacted(reply=reply))
    secret(s, reply if bad else other)
    if bad:
        secret(s, number)
    return [("Q14", reply), ("Q14", number)] if bad else []


@variant()
def q15_row_gone(s: Story, bad: bool) -> Found:
    for number in range(3):
        s.add(VarSet(name="n", value=number))
    if bad:
        s.drops.add(0)
        s.drops.add(2)
    return [("Q15", 1), ("Q15", 3)] if bad else []


@variant()
def q15_row_twice(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    s.add(VarSet(name="n"))
    if bad:
        s.copies.add(1)
    return when(bad, "Q15", 1)


@variant()
def q15_head(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    s.stated = {"last_sequence": 2 if bad else 1}
    return when(bad, "Q15", 1)


@variant()
def q15_head_without_rows(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    s.drops.update((0, 1))
    s.stated = {} if bad else {"status": "expired"}
    return when(bad, "Q15", -1)


@variant()
def q15_row_in_trajectories_gone(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    if bad:
        s.stated = None
    return when(bad, "Q15", number)


@variant()
def q15_held_back(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    if bad:
        s.stray(VarSet(name="m"), token=1, after=number, ahead=1)
        s.stray(VarSet(name="m"), token=1, after=number, ahead=2)
        return [("Q15", number + 2)]
    take_over(s)
    s.stray(VarSet(name="m"), token=1, after=number)
    return []


@variant()
def q15_conflict(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    if bad:
        s.stray(VarSet(name="m"), token=1, after=0)
    return when(bad, "Q15", 1)


@variant()
def q16a_envelope(s: Story, bad: bool) -> Found:
    for value in range(4):
        s.add(VarSet(name="n", value=value))
    if not bad:
        return []
    s.edits += [(1, {"turn": 9}), (2, {"recorded_at": minute(6)}), (4, {"cryptographic_hash": digest("x")})]
    return [("Q16a", 1), ("Q16a", 2), ("Q16a", 4)]


@variant()
def q16a_first(s: Story, bad: bool) -> Found:
    if bad:
        s.edits.append((0, {"cryptographic_hash": digest("x")}))
    return when(bad, "Q16a", 0)


@variant()
def q16a_commitment(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    if bad:
        s.edits.append((1, {"commitment": None}))
    return [("Q16a", 1), ("Q16a", 1)] if bad else []


@variant()
def q16a_payload(s: Story, bad: bool) -> Found:
    for value in range(4):
        s.add(VarSet(name="n", value=value))
    if not bad:
        return []
    s.edits += [
        (1, {"payload": "{}"}),
        (2, {"payload": None, "salt": None}),
        (3, {"salt": None}),
        (4, {"payload": None}),
    ]
    return [("Q16a", 1), ("Q16a", 2), ("Q16a", 3), ("Q16a", 4)]


@variant()
def q16a_erased(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    for number in (0, 1):
        s.edits.append((number, {"payload": None, "salt": None}))
    state = "refused" if bad else "complete"
    s.ledger.append(
        ("erasures", {"erasure_id": own(s, "e"), "epoch": 1, "state": state, "trajectory_id": s.trajectory_id})
    )
    return [("Q16a", 0), ("Q16a", 1)] if bad else []


@variant(subjects=("s-7",))
def q16a_erased_by_subject(s: Story, bad: bool) -> Found:
    s.edits.append((0, {"payload": None, "salt": None}))
    subject = own(s, "other") if bad else own(s, "subject")
    s.stated = {"subjects": json.dumps([own(s, "subject")], ensure_ascii=False)}
    s.ledger.append(("erasures", {"erasure_id": own(s, "e"), "epoch": 1, "state": "pending", "subject": subject}))
    return when(bad, "Q16a", 0)


@variant()
def q16a_erased_but_not_all_gone(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    s.edits.append((0, {"payload": None, "salt": None}))
    s.edits.append((1, {"payload": "{}"} if bad else {"payload": None}))
    s.ledger.append(
        ("erasures", {"erasure_id": own(s, "e"), "epoch": 1, "state": "complete", "trajectory_id": s.trajectory_id})
    )
    return when(bad, "Q16a", 1)


def anchored(s: Story, number: int, digest_of_head: str, name: str = "a") -> None:
    head = [s.trajectory_id, number, digest_of_head, s.started_on.isoformat()]
    row = {
        "anchor_id": own(s, name),
        "day": s.started_on,
        "root": digest("r"),
        "trajectories": 1,
        "detail": {"heads": [head]},
    }
    s.ledger.append(("anchors", row))


@variant()
def q16b_head(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    s.add(VarSet(name="m"))
    right = s.events[number].hash.hex()
    anchored(s, number, digest("other") if bad else right)
    anchored(s, number, digest("other") if bad else right, "b")
    anchored(s, 9 if bad else number, right, "c")
    return [("Q16b", number), ("Q16b", 9)] if bad else []


@variant()
def q16b_superseded(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    take_over(s)
    s.stray(VarSet(name="late"), token=1, after=number)
    digest_of_head = s.astray[0].hash.hex()
    anchored(s, number + 1, digest("other") if bad else digest_of_head)
    return when(bad, "Q16b", number + 1)


@variant()
def q16b_held_back_is_no_excuse(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    s.stray(VarSet(name="late"), token=1, after=number, ahead=1)
    if bad:
        anchored(s, number + 2, s.astray[0].hash.hex())
    return [("Q15", number + 2), *when(bad, "Q16b", number + 2)]


@variant()
def q16b_expired(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    anchored(s, 1, s.events[1].hash.hex())
    s.drops.update((0, 1))
    s.stated = {"status": "open" if bad else "expired"}
    return [("Q15", -1), ("Q16b", 1)] if bad else []


# -- retention: blobs 100 to 200 days, payloads at most 300 ------------------------------------------------------------


def kept(s: Story, days: float, name: str = "b", *, there: bool) -> int:
    """An event of that age which names a blob, in no context."""
    s.at = NOW - days * DAY_MINUTES
    number = s.add(VarSet(name="v", value=blob(own(s, name))))
    if there:
        stored(s, name)
    return number


def hold(s: Story, *actions: str, at: float = 1, **more: Any) -> None:
    more.setdefault("trajectory_id", s.trajectory_id)
    for place, action in enumerate(actions):
        s.ledger.append(("holds", {"hold_id": own(s, "h"), "action": action, "at": minute(at + place), **more}))


@variant()
def q20_kept_too_long(s: Story, bad: bool) -> Found:
    return when(bad, "Q20", kept(s, 201 if bad else 200, there=True))


@variant()
def q20_destroyed_early(s: Story, bad: bool) -> Found:
    return when(bad, "Q20", kept(s, 99 if bad else 100, there=False))


@variant()
def q20_newest_reference_counts(s: Story, bad: bool) -> Found:
    kept(s, 250, there=True)
    number = kept(s, 210 if bad else 190, there=False)
    return when(bad, "Q20", number)


@variant()
def q20_held(s: Story, bad: bool) -> Found:
    hold(s, "place", *(("lift",) if bad else ("confirm",)))
    return when(bad, "Q20", kept(s, 250, there=True))


@variant()
def q20_destroyed_under_hold(s: Story, bad: bool) -> Found:
    hold(s, "place", "confirm" if bad else "late")
    return when(bad, "Q20", kept(s, 150, there=False))


@variant()
def q20_hold_lifted(s: Story, bad: bool) -> Found:
    hold(s, *(("place",) if bad else ("place", "lift")))
    return when(bad, "Q20", kept(s, 150, there=False))


@variant()
def q20_erased(s: Story, bad: bool) -> Found:
    hold(s, "place", at=20)
    number = kept(s, 5, there=False)
    erasure = {"erasure_id": own(s, "e"), "epoch": 1, "state": "complete", "trajectory_id": s.trajectory_id}
    s.ledger.append(("erasures", {**erasure, "at": minute(20 if bad else 19)}))
    return when(bad, "Q20", number)


@variant()
def q20_hold_by_subject(s: Story, bad: bool) -> Found:
    s.stated = {"subjects": json.dumps([own(s, "subject")], ensure_ascii=False)}
    hold(s, "place", trajectory_id=None, subject=own(s, "subject" if bad else "nobody"))
    return when(bad, "Q20", kept(s, 150, there=False))


@variant(at=NOW - 310 * DAY_MINUTES)
def q20_payloads(s: Story, bad: bool) -> Found:
    s.at = NOW - (301 if bad else 299) * DAY_MINUTES
    return when(bad, "Q20", s.add(VarSet(name="n")))
