"""The canonical events of the trajectories that a run touches, as the derived tables read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl

from trajlake.pipelines.derived.canonicalize import Judged
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.history import Opening, covered, given_up, roll_backs
from trajlake.schemas.tables import SNAPSHOT_TABLES

ERASED = b"{}"
"""Stands for a payload that was erased: every projection has a default for every field."""


class Fields(msgspec.Struct, gc=False):
    """Base of the projections: the fields of an event type that a table needs, each with a default."""


FieldsT = TypeVar("FieldsT", bound=Fields)


class Row(msgspec.Struct, frozen=True, gc=False):
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
    """`rows`: canonical events with `t` and `given_up`, sorted; `parts`: the same by event type.

    `places` has one row for each trajectory, by `t`; `lines` are by `t`.
    """

    rows: pl.DataFrame
    parts: Mapping[str, pl.DataFrame]
    places: pl.DataFrame
    lines: Sequence[tuple[Opening, ...]]

    @classmethod
    def of(cls, counting: pl.DataFrame, judged: Judged) -> Touched:
        """Mark what roll-backs gave up, and note where each trajectory belongs."""
        places = counting.unique("t", keep="first", maintain_order=True).select("t", *Place._fields)
        rows = _with_given_up(counting.with_columns(pl.col("recorded_at").dt.epoch("us").alias("at")))
        parts = rows.select(*_HEAD, "event_type", "payload").partition_by(
            "event_type", maintain_order=True, as_dict=True
        )
        return cls(rows, {kind: part for (kind,), part in parts.items()}, places, judged.lines)

    def each(self, event_type: str, fields: type[FieldsT]) -> Iterator[tuple[Row, FieldsT]]:
        """Yield every event of a type with its fields, by trajectory and number."""
        part = self.parts.get(event_type)
        if part is None:
            return
        decode = msgspec.json.Decoder(fields, strict=False).decode
        for row, payload in zip(_heads(part), _payloads(part), strict=True):
            yield row, _decoded(decode, payload)

    def ordered(self, fields_of: Mapping[str, type[Fields]]) -> Iterator[tuple[str, Row, Any]]:
        """Yield the events of several types with their fields, by trajectory and number over all of them."""
        decoders = {kind: msgspec.json.Decoder(fields, strict=False).decode for kind, fields in fields_of.items()}
        part = self.rows.filter(pl.col("event_type").is_in(list(fields_of)))
        for kind, row, payload in zip(part["event_type"].to_list(), _heads(part), _payloads(part), strict=True):
            yield kind, row, _decoded(decoders[kind], payload)

    def frame(self, table: str, rows: Sequence[tuple[int, dict[str, Any]]]) -> pl.DataFrame:
        """Return rows as a frame with every column of `table`; each is (t, values without the place)."""
        schema = polars_schema(SNAPSHOT_TABLES[table])
        if not rows:
            return pl.DataFrame(schema=schema)
        stamps = {name for name, kind in schema.items() if isinstance(kind, pl.Datetime)}
        values = [facts for _, facts in rows]
        columns = [
            pl.Series(name, [one.get(name) for one in values], pl.Int64() if name in stamps else kind)
            for name, kind in schema.items()
            if name not in Place._fields
        ]
        owners = pl.DataFrame({"t": [t for t, _ in rows]}, schema={"t": self.places["t"].dtype})
        placed = owners.join(self.places, on="t", how="left", maintain_order="left")
        frame = placed.with_columns(columns).select(pl.col(name).cast(kind) for name, kind in schema.items())
        return frame.sort(SNAPSHOT_TABLES[table].sort_by, maintain_order=True, nulls_last=True)


_INLINE_VIEW_MAX = 12
"""A text up to this size stands in its view (Arrow's format of string views)."""
_HEAD = ("t", "sequence_number", "turn", "at", "given_up", "behind", "fencing_token")


def _heads(part: pl.DataFrame) -> Iterator[Row]:
    return map(Row, *(part[name].to_list() for name in _HEAD))


def _payloads(part: pl.DataFrame) -> Iterator[memoryview | None]:
    """Yield the texts where they stand, uncopied: a str would be made of each only to be encoded again."""
    column = part["payload"].to_arrow(compat_level=pl.CompatLevel.newest())
    _, views, *data = [memoryview(buffer or b"") for buffer in column.buffers()]
    first = column.offset
    fields = np.frombuffer(views, "<i4").reshape(-1, 4)[first : first + len(column)]
    present = repeat(True) if column.null_count == 0 else column.is_valid().to_pylist()
    for n, (size, _, place, start), is_there in zip(count(first), fields.tolist(), present, strict=False):
        if not is_there:
            yield None
        elif size <= _INLINE_VIEW_MAX:
            yield views[16 * n + 4 : 16 * n + 4 + size]
        else:
            yield data[place][start : start + size]


def _decoded(decode: Callable[[memoryview | bytes], FieldsT], payload: memoryview | None) -> FieldsT:
    """Return an event's fields; all defaults where the payload is erased or does not hold what its type promises."""
    if payload is None:
        return decode(ERASED)
    try:
        return decode(payload)
    except msgspec.MsgspecError:
        return decode(ERASED)


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
