"""The canonical events of the trajectories that a run touches, as the derived tables read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import polars as pl

from trajlake.pipelines.arrow_schema import polars_schema
from trajlake.pipelines.canonicalize import Judged
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.history import Opening, covered, given_up, roll_backs
from trajlake.schemas.tables import SNAPSHOT_TABLES

ERASED = "{}"
"""Stands for a payload that was erased: every projection has a default for every field."""


class Fields(msgspec.Struct, gc=False):
    """Base of the projections: the fields of an event type that a table needs, each with a default."""


FieldsT = TypeVar("FieldsT", bound=Fields)


class Row(NamedTuple):
    """One event beside its decoded fields. `at` is µs UTC.

    `behind`: it lies in a roll-back, so what it proposes is given up even where the event itself still counts.
    """

    t: int
    seq: int
    turn: int
    at: int
    given_up: bool
    behind: bool
    token: int


class Place(NamedTuple):
    """What every row of a trajectory repeats."""

    tenant: str
    trajectory_id: str
    started_on: Any
    model: str


class Touched(NamedTuple):
    """`rows`: canonical events with `t` and `given_up`, sorted; `places` and `lines` by `t`."""

    rows: pl.DataFrame
    places: dict[int, Place]
    lines: Sequence[tuple[Opening, ...]]

    @classmethod
    def of(cls, counting: pl.DataFrame, judged: Judged) -> Touched:
        """Mark what roll-backs gave up, and note where each trajectory belongs."""
        firsts = counting.unique("t", keep="first", maintain_order=True)
        places = {
            t: Place(tenant, trajectory_id, started_on, model)
            for t, tenant, trajectory_id, started_on, model in firsts.select(
                "t", "tenant", "trajectory_id", "started_on", "model"
            ).iter_rows()
        }
        return cls(_with_given_up(counting), places, judged.lines)

    def each(self, event_type: str, fields: type[FieldsT]) -> Iterator[tuple[Row, FieldsT]]:
        """Yield every event of a type with its fields, by trajectory and number."""
        decode = msgspec.json.Decoder(fields, strict=False).decode
        part = self.rows.filter(pl.col("event_type") == event_type)
        for row, payload in zip(_heads(part), part["payload"].to_list(), strict=True):
            yield row, _decoded(decode, payload)

    def ordered(self, fields_of: Mapping[str, type[Fields]]) -> Iterator[tuple[str, Row, Any]]:
        """Yield the events of several types with their fields, by trajectory and number over all of them."""
        decoders = {name: msgspec.json.Decoder(fields, strict=False).decode for name, fields in fields_of.items()}
        part = self.rows.filter(pl.col("event_type").is_in(list(fields_of)))
        for kind, row, payload in zip(
            part["event_type"].to_list(), _heads(part), part["payload"].to_list(), strict=True
        ):
            yield kind, row, _decoded(decoders[kind], payload)

    def frame(self, table: str, rows: Sequence[tuple[int, dict[str, Any]]]) -> pl.DataFrame:
        """Return rows as a frame with every column of `table`; each is (t, values without the place)."""
        schema = polars_schema(SNAPSHOT_TABLES[table])
        columns: dict[str, list[Any]] = {}
        for name in schema:
            if name in Place._fields:
                columns[name] = [getattr(self.places[t], name) for t, _ in rows]
            else:
                columns[name] = [values.get(name) for _, values in rows]
        stamps = [name for name, kind in schema.items() if isinstance(kind, pl.Datetime)]
        raw = {name: pl.Int64() if name in stamps else kind for name, kind in schema.items()}
        frame = pl.DataFrame(columns, schema=raw).with_columns(pl.col(n).cast(schema[n]) for n in stamps)
        return frame.sort(SNAPSHOT_TABLES[table].sort_by, maintain_order=True, nulls_last=True)


def _decoded(decode: Callable[[str], FieldsT], payload: str | None) -> FieldsT:
    """Return an event's fields; all defaults where the payload is erased or does not hold what its type promises."""
    if payload is None:
        return decode(ERASED)
    try:
        return decode(payload)
    except msgspec.MsgspecError:
        return decode(ERASED)


def _heads(part: pl.DataFrame) -> Iterator[Row]:
    at = part["recorded_at"].dt.epoch("us").to_list()
    before, behind = ("t", "sequence_number", "turn"), ("given_up", "behind", "fencing_token")
    columns = [part[name].to_list() for name in before], [part[name].to_list() for name in behind]
    return map(Row, *columns[0], at, *columns[1])


def _with_given_up(rows: pl.DataFrame) -> pl.DataFrame:
    rolled = rows.filter(pl.col("event_type") == "RolledBack")["t"].unique()
    if not len(rolled):
        return rows.with_columns(pl.lit(False).alias("given_up"), pl.lit(False).alias("behind"))
    marks = []
    columns = ("sequence_number", "fencing_token", "turn", "event_type", "payload")
    for (t,), part in rows.filter(pl.col("t").is_in(rolled.implode())).partition_by("t", as_dict=True).items():
        events = [_event(*row) for row in part.select(columns).iter_rows()]
        try:
            lost = given_up(events)
            behind = covered(events, roll_backs(events))
        except InvalidEvent:
            continue  # a roll-back, or what it may leave standing, is no payload of its type: nothing is given up
        marks += [(t, event.sequence_number, event.sequence_number in lost, True) for event in behind]
    schema = {"t": pl.UInt32, "sequence_number": pl.Int64, "given_up": pl.Boolean, "behind": pl.Boolean}
    marked = rows.join(
        pl.DataFrame(marks, schema=schema, orient="row"),
        on=["t", "sequence_number"],
        how="left",
        maintain_order="left",
    )
    return marked.with_columns(pl.col("given_up", "behind").fill_null(False))


def _event(number: int, token: int, turn: int, kind: str, payload: str | None) -> Event:
    return Event(
        tenant="", trajectory_id="", sequence_number=number, fencing_token=token, turn=turn, type=kind, recorded_at=0,
        payload=None if payload is None else payload.encode(), salt=None, hash=b"",
    )  # fmt: skip


def or_none(text: str | None) -> str | None:
    """Return a text, or None for the empty one that stands for an absent field."""
    return text or None


def json_text(value: Any) -> str | None:
    """Return a value as JSON text; None and absent fields as None."""
    if value is None or value is msgspec.UNSET:
        return None
    return msgspec.json.encode(value).decode()


def blob_of(value: Any) -> str | None:
    """Return the sha256 of a blob reference, or None for any other value."""
    found = value.get("$blob") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def event_number(reference: Any) -> int | None:
    """Return the sequence number of a reference to an event of this trajectory, None for an ancestor's."""
    return reference if isinstance(reference, int) else None
