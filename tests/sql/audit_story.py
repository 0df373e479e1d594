"""A frame writer for tests only: any history through the real event types, legal or not, and the rows it makes.

The runtime refuses to write most of what the controls look for; here every event is real (type, chain, hash), only the
order of facts is free. Rows come from the project's own `canonicalize` and `derive`.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import polars as pl

from trajlake.pipelines.derived.canonicalize import CANONICAL, REASONS, canonicalize
from trajlake.pipelines.derived.derive import derive
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.schemas.chain import commitment, event_hash, genesis, hash_of
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    ContextBuilt,
    ModelReplied,
    Payload,
    ProposedCall,
    TaskStarted,
    ToolIntent,
    ToolResult,
    encode_payload,
)
from trajlake.schemas.tables import EVENTS, TABLES

START: dt.datetime = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
MINUTE_US = 60_000_000
Row = dict[str, Any]


def minute(number: float) -> dt.datetime:
    """The story's clock: minutes since the start of the day."""
    return START + dt.timedelta(minutes=number)


def micros(number: float) -> int:
    return round(minute(number).timestamp() * 1_000_000)


def digest(text: str) -> str:
    """A hash that stands for a text."""
    return random.Random(text).randbytes(32).hex()


def blob_bytes(name: str) -> bytes:
    """The bytes behind a blob of a story."""
    return f"blob {name} ".encode() * 4_000


def blob_hash(name: str) -> str:
    return sha256(blob_bytes(name)).hexdigest()


def blob(name: str) -> dict[str, Any]:
    """A reference to a blob, as `offload` makes it."""
    data = blob_bytes(name)
    return {"$blob": blob_hash(name), "bytes": len(data), "kind": "text", "head": data[:200].decode(errors="ignore")}


class Story:
    """One trajectory, written event by event. `at` is in minutes; `token` stays what it was set to."""

    def __init__(
        self,
        trajectory_id: str,
        *,
        tenant: str = "acme",
        origin: str = "live",
        model: str = "m1",
        at: float = 5.0,
        turn: int = 0,
        **start: Any,
    ) -> None:
        self.tenant, self.trajectory_id, self.model = tenant, trajectory_id, model
        self.started_on = START.date()
        self.events: list[Event] = []
        self.astray: list[Event] = []
        self.token, self.turn, self.at, self.schema_version = 1, turn, at, 1
        self.strip: list[tuple[int, str]] = []
        self.put: list[tuple[int, str, Any]] = []
        self.edits: list[tuple[int, Row]] = []
        self.edits_aside: list[tuple[int, Row]] = []
        self.drops: set[int] = set()
        self.copies: set[int] = set()
        self.stated: Row | None = {}
        self.ledger: list[tuple[str, Row]] = []
        self.outside: list[tuple[str, Row]] = []
        self._items = 0
        self._shown: list[int] = []
        self._context: int | None = None
        self.random = random.Random(f"{tenant} {trajectory_id}")
        start.setdefault("principal", "u-owner")
        self.add(TaskStarted(task={"text": "do it"}, origin=origin, model=model, **start))  # type: ignore[arg-type]

    @property
    def next(self) -> int:
        return len(self.events)

    @property
    def new_action(self) -> str:
        """Id of an action whose first event is the next one."""
        return f"{self.next}.0"

    def event(self, payload: Payload, number: int, token: int, prev: bytes, at: float) -> Event:
        """Return an event with every field as told: what `make_event` makes, without its refusals."""
        text, salt = encode_payload(payload), self.random.randbytes(16)
        bound, name = commitment(salt, text), type(payload).__name__
        hashed = event_hash(
            prev,
            self.tenant,
            self.trajectory_id,
            number,
            name,
            self.schema_version,
            token,
            self.turn,
            micros(at),
            bound,
        )
        return Event(
            tenant=self.tenant, trajectory_id=self.trajectory_id, sequence_number=number, fencing_token=token,
            turn=self.turn, type=name, recorded_at=micros(at), payload=text, salt=salt, hash=hashed,
            schema_version=self.schema_version, commitment=bound,
        )  # fmt: skip

    def add(self, payload: Payload, *, at: float | None = None) -> int:
        """Append an event and return its number."""
        self.at = self.at if at is None else at
        prev = self.events[-1].hash if self.events else genesis(self.tenant, self.trajectory_id)
        self.events.append(self.event(payload, self.next, self.token, prev, self.at))
        return self.next - 1

    def stray(self, payload: Payload, *, token: int, after: int, ahead: int = 0) -> int:
        """Write what a worker that lost its lease writes: after event `after` (or `ahead` further), under its token."""
        number = after + 1 + ahead
        self.astray.append(self.event(payload, number, token, self.events[after].hash, self.at))
        return number

    def unshow(self, number: int) -> None:
        """Take an event out of the next context."""
        self._shown.remove(number)

    def finished(self) -> list[Event]:
        """Return the events with stripped fields gone, foreign ones put in, and the chain made anew."""
        if not self.strip and not self.put:
            return self.events
        prev, chained = genesis(self.tenant, self.trajectory_id), []
        for event in self.events:
            body = msgspec.json.decode(event.payload or b"")
            for number, field in self.strip:
                if number == event.sequence_number:
                    body.pop(field, None)
            body |= {field: value for number, field, value in self.put if number == event.sequence_number}
            text = msgspec.json.encode(body)
            bound = commitment(event.salt or b"", text)
            event = msgspec.structs.replace(event, payload=text, commitment=bound, hash=hash_of(event, prev, bound))
            chained.append(event)
            prev = event.hash
        return chained

    # -- short forms -----------------------------------------------------------------------------------------

    def allow(self, action: str, arguments: str = "a", *, decision: str = "allow", **more: Any) -> int:
        more.setdefault("policy_version", "p1")
        return self.add(
            Authorized(action_id=action, tool="pay", decision=decision, arguments_hash=digest(arguments), **more)  # type: ignore[arg-type]
        )

    def intend(self, action: str, label: str = "a", *, at: float | None = None, **more: Any) -> int:
        more.setdefault("key", digest(f"{self.trajectory_id} {action}"))
        more.setdefault("tool", "pay")
        more.setdefault("effect", "external")
        return self.add(ToolIntent(action_id=action, arguments_hash=digest(label), **more), at=at)

    def result(self, action: str, status: str = "ok", **more: Any) -> int:
        return self.add(ToolResult(action_id=action, status=status, **more))  # type: ignore[arg-type]

    def done(self, arguments: str = "a", *, status: str = "ok", at: float | None = None, **intent: Any) -> str:
        """A whole action as it should be: allowed, intended, answered. Returns its id."""
        action = self.new_action
        self.allow(action, arguments)
        self.intend(action, arguments, at=at, **intent)
        self.result(action, status, attempt=intent.get("attempt", 1))
        return action

    def ask(self, approval: str, action: str, arguments: str = "a", **more: Any) -> int:
        more.setdefault("requester", "agent-7")
        return self.add(
            ApprovalRequested(
                approval_id=approval, action_id=action, tool="pay", arguments_hash=digest(arguments), **more
            )
        )

    def answer(
        self, approval: str, action: str, decision: str = "granted", approver: str = "u-boss", at: float | None = None
    ) -> int:
        return self.add(
            ApprovalResolved(approval_id=approval, action_id=action, decision=decision, approver=approver),  # type: ignore[arg-type]
            at=at,
        )

    def context(self, *, keep: int | None = None, purpose: str = "act", base: int | None = None, **more: Any) -> int:
        """Build the context out of everything shown since: `keep` of the earlier items (all by default)."""
        kept = self._items if keep is None else keep
        number = self.add(
            ContextBuilt(
                context_hash=digest(f"context {self.next}"), purpose=purpose, keep=kept, append=tuple(self._shown),
                base=self._context if base is None else base, **more,
            )
        )  # fmt: skip
        self._items, self._shown, self._context = kept + len(self._shown), [], number
        return number

    def show(self, *numbers: int) -> None:
        """Put events into the next context."""
        self._shown += numbers

    def think(self, *tools: str, model: str | None = None, context: int | None = None, **more: Any) -> list[str]:
        """A context and its reply, which enters the next context; returns the ids of the actions it proposes."""
        built = (
            self.context(keep=more.pop("keep", None), purpose=more.pop("purpose", "act"))
            if context is None
            else context
        )
        number = self.add(
            ModelReplied(
                raw="{}", context=built, served_model=self.model if model is None else model,
                calls=tuple(ProposedCall(tool=tool, arguments="{}") for tool in tools), **more,
            )
        )  # fmt: skip
        self.show(number)
        return [f"{number}.{index}" for index in range(len(tools))]


def frame_rows(events: Iterable[Event], started_on: dt.date, model: str) -> list[Row]:
    """Return rows of `events` for events as they come out of segments."""
    return [
        {
            "tenant": event.tenant,
            "trajectory_id": event.trajectory_id,
            "sequence_number": event.sequence_number,
            "event_type": event.type,
            "schema_version": event.schema_version,
            "fencing_token": event.fencing_token,
            "turn": event.turn,
            "recorded_at": dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=event.recorded_at),
            "payload": (event.payload or b"").decode(),
            "salt": (event.salt or b"").hex(),
            "commitment": (event.commitment or b"").hex(),
            "cryptographic_hash": event.hash.hex(),
            "writer": "0" * 32,
            "lsn": place,
            "started_on": started_on,
            "model": model,
        }
        for place, event in enumerate(events)
    ]


def tables_of(stories: Sequence[Story]) -> dict[str, list[Row]]:
    """Return every snapshot table as a lake holds it after it took these stories in."""
    rows = [row for s in stories for row in frame_rows([*s.finished(), *s.astray], s.started_on, s.model)]
    columns = polars_schema(EVENTS)
    frame = pl.DataFrame(rows, schema=columns).with_columns(pl.lit(2, pl.UInt8).alias("origin"))
    judged = canonicalize(frame)
    counting = judged.rows.filter(pl.col("verdict") == CANONICAL)
    aside = judged.rows.filter(pl.col("verdict") != CANONICAL)
    tables = derive(counting, judged, aside)
    tables["events"] = counting.select(EVENTS.column_names)
    tables["quarantine"] = aside.with_columns(
        pl.col("verdict").replace_strict(REASONS, return_dtype=pl.String).alias("reason"),
        pl.lit(None, pl.String).alias("detail"),
        pl.lit(None, pl.Int64).alias("last_lsn"),
    ).select(TABLES["quarantine"].column_names)
    return {name: found.to_dicts() for name, found in tables.items()}
