"""A DuckDB session in which controls run: what they may ask for, the lake's tables, and the facts read from events.

Nothing that comes from a lake or a user becomes SQL text: paths, tenant, dates and limits are session variables, set
by prepared statements. Only files whose partition can hold the tenant and dates are named to DuckDB.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trajlake.pipelines.progress import Progress, no_progress
from trajlake.schemas.tables import SNAPSHOT_TABLES, TABLES, Table

from ..connect import DUCKDB_TYPES, FILES_OF
from ..lakehouse.places import is_remote, read
from ..sql_text import identifier
from .audit_controls import PART, Control, Fact, facts_for, lake_tables

if TYPE_CHECKING:
    from ..lakehouse.lake import DataFile, Lake
    from ..lakehouse.snapshot import Snapshot

MEMORY_LIMIT: Final = "3GiB"
PART_ROWS: Final = 400_000
"""Rows of one stretch: with payloads of 1 KB about 600 MB in memory."""
PART_COLUMNS: Final = (
    "tenant", "trajectory_id", "started_on", "sequence_number", "event_type", "schema_version", "fencing_token",
    "turn", "recorded_at", "payload", "salt", "commitment",
)  # fmt: skip
PART_COPIES: Final = "part"
"""The folder of copies of the stretch that is read, for a lake in object storage; gone with the stretch."""
FIRST_DAY: Final = dt.date(1, 1, 1)
LAST_DAY: Final = dt.date(9999, 12, 31)

IN_SCOPE: Final = """
create macro in_scope(tenant_of_row, day_of_row) as (
    (getvariable('audit_tenant') is null or tenant_of_row = getvariable('audit_tenant'))
    and (day_of_row is null or day_of_row between getvariable('audit_from') and getvariable('audit_to'))
)
"""
SESSION_DDL: Final = """
create table retention_policy (tenant varchar, what varchar, minimum_days integer, maximum_days integer);
create table compatible_versions (from_version bigint, to_version bigint);
create table anchor_files (tenant varchar, anchor_id varchar, document varchar);
"""


class Retention(NamedTuple):
    """How long a kind of bytes (blobs, payloads) is kept; tenant "*" is every tenant. None: no such bound."""

    tenant: str
    what: str
    minimum_days: int | None
    maximum_days: int | None


class AnchorFile(NamedTuple):
    """An anchor that was handed in from outside the lake, its signature checked: the document's JSON text."""

    tenant: str
    anchor_id: str
    document: str


class Scope(NamedTuple):
    """What is audited, and by which clock. `first` and `last` are days on which trajectories started, both included."""

    now: dt.datetime
    tenant: str | None = None
    first: dt.date = FIRST_DAY
    last: dt.date = LAST_DAY
    sla_minutes: int = 60
    retention: tuple[Retention, ...] = ()
    compatible: tuple[tuple[int, int], ...] = ()
    anchors: tuple[AnchorFile, ...] = ()


class FilesRead(NamedTuple):
    """How many files of a table were named to DuckDB, and how many it has."""

    table: str
    read: int
    total: int


class Session:
    """One connection in which controls run. Closing it removes what it spilled to disk."""

    def __init__(self, scope: Scope, *, memory_limit: str = MEMORY_LIMIT) -> None:
        import duckdb

        self.scope = scope
        self.files: list[FilesRead] = []
        self._spill = tempfile.mkdtemp(prefix="trajlake-audit-")
        self.connection = duckdb.connect()
        self.connection.execute("set TimeZone = 'UTC'")
        self.connection.execute("set memory_limit = $1", [memory_limit])
        self.connection.execute("set temp_directory = $1", [self._spill])
        self.connection.execute("set preserve_insertion_order = false")
        self.connection.execute("set enable_progress_bar = false")
        for name, value in _variables(scope).items():
            self.set_variable(name, value)
        self.connection.execute(IN_SCOPE)
        self.connection.execute(SESSION_DDL)
        self._insert("retention_policy", scope.retention)
        self._insert("compatible_versions", scope.compatible)
        self._insert("anchor_files", scope.anchors)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def set_variable(self, name: str, value: Any) -> None:
        """Set a session variable by a prepared statement; `name` is ours, the value anybody's."""
        self.connection.execute(f"set variable {name} = $1", [value])

    def count(self, table: str) -> int:
        (row,) = self.connection.execute(f"select count(*) from {identifier(table)}").fetchall()
        return int(row[0])

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            marks = ", ".join(f"${n}" for n in range(1, len(row) + 1))
            self.connection.execute(f"insert into {table} values ({marks})", list(row))

    # -- tables ------------------------------------------------------------------------------------------------

    def load_lake(self, lake: Lake, at: Snapshot, names: Iterable[str]) -> list[DataFile]:
        """Make a view of each table, over the files that can hold rows in scope; return those of `events`."""
        events: list[DataFile] = []
        for name in names:
            table = TABLES[name]
            if table.ledger:
                rows = lake.ledger_data_files(name)
                self.make_view(table, self.brought(name, rows), ())
                self.files.append(FilesRead(name, len(rows), len(rows)))
                continue
            files = lake.files(at, name)
            kept = [file for file in files if may_be_in_scope(file, self.scope)]
            self.files.append(FilesRead(name, len(kept), len(files)))
            if name == "events":
                events = kept
            if name == "events" and kept and is_remote(lake.url):
                self._view_of_dataset(lake, table, kept)
            else:
                self.make_view(table, self.brought(name, kept), _partitions(table, at))
        return events

    def brought(self, name: str, files: Sequence[DataFile]) -> list[str]:
        """Return local paths of `files`: those of a lake in object storage are copied beside what spills."""
        return [self._copied(name, file) if is_remote(file.path) else file.path for file in files]

    def _copied(self, name: str, file: DataFile) -> str:
        path = os.path.join(self._spill, name, file.relative)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as copy:
                copy.write(read(file.path))
        return path

    def _view_of_dataset(self, lake: Lake, table: Table, files: Sequence[DataFile]) -> None:
        """Make a table known whose files stay where they are: controls ask for a few columns or rows of it."""
        from ..lakehouse.arrow_dataset import dataset_of

        held = f"{FILES_OF}{table.name}"
        self.connection.register(held, dataset_of(table, lake.path(table.name), files))
        columns = ", ".join(identifier(column.name) for column in table.columns)
        self.connection.execute(f"create view {identifier(table.name)} as select {columns} from {identifier(held)}")

    def make_view(self, table: Table, paths: list[str], partitions: tuple[str, ...]) -> None:
        """Make a table of the lake known under its name, over these files."""
        name = identifier(table.name)
        if not paths:
            columns = ", ".join(f"{identifier(c.name)} {DUCKDB_TYPES[c.type]}" for c in table.columns)
            self.connection.execute(f"create table {name} ({columns})")
            return
        self.set_variable(f"files_{table.name}", paths)
        types = ", ".join(f"cast(null as {DUCKDB_TYPES[c.type]}) as {identifier(c.name)}" for c in table.columns)
        columns = ", ".join(identifier(c.name) for c in table.columns)
        # Files of an older trajlake lack newer columns: they are null there.
        files = select_from(table, f"files_{table.name}", partitions, ("*",), "union_by_name = true")
        whole = f"select {types} where false union all by name {files}"
        self.connection.execute(f"create view {name} as select {columns} from ({whole})")

    # -- facts -------------------------------------------------------------------------------------------------

    def build_facts(
        self, selected: Sequence[Control], parts: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> None:
        """Build every fact that `selected` reads. `parts` yields the select of each stretch of the events in turn
        (default: the table `events` as it stands); each is read once for all facts.
        """
        wanted = facts_for(selected)
        by_part = [fact for fact in wanted if fact.by_part]
        for fact in wanted:
            if fact.name == "audited":
                self._create(fact)
        if by_part:
            columns = ", ".join(PART_COLUMNS)
            self._stretch(f"select {columns} from events where false")
            for fact in by_part:
                self._create(fact)
            for part in parts if parts is not None else [f"select {columns} from events"]:
                self._stretch(part)
                for fact in by_part:
                    self.connection.execute(f"insert into {fact.name} {fact.sql}")
                progress("facts read", 0, 0)
            self._stretch(f"select {columns} from events where false")
        for fact in wanted:
            if not fact.by_part and fact.name != "audited":
                self._create(fact)

    def _create(self, fact: Fact) -> None:
        self.connection.execute(f"create temp table {fact.name} as {fact.sql}")

    def _stretch(self, select: str) -> None:
        self.connection.execute(f"create or replace temp table {PART} as {select}")

    def event_parts(self, files: Sequence[DataFile], partitions: tuple[str, ...]) -> Iterator[str]:
        """Yield the select of each stretch of `files`: whole files up to PART_ROWS rows, longer ones cut."""
        table = SNAPSHOT_TABLES["events"]
        for group, first, last in stretches(files):
            self.set_variable("files_part", self.brought(PART_COPIES, group))
            self.set_variable("part_first", first)
            self.set_variable("part_last", last)
            bounds = "file_row_number between getvariable('part_first') and getvariable('part_last')"
            select = select_from(table, "files_part", partitions, PART_COLUMNS, "file_row_number = true")
            yield f"{select} where in_scope(tenant, started_on)" + (f" and {bounds}" if first is not None else "")
            if first is None or last is None or last + 1 >= group[0].rows:
                shutil.rmtree(os.path.join(self._spill, PART_COPIES), ignore_errors=True)


def _variables(scope: Scope) -> dict[str, Any]:
    return {
        "audit_tenant": scope.tenant,
        "audit_from": scope.first,
        "audit_to": scope.last,
        "audit_now": scope.now,
        "audit_sla_minutes": scope.sla_minutes,
    }


def _partitions(table: Table, at: Snapshot) -> tuple[str, ...]:
    return tuple(at.partition_by if table.partition_by is None else table.partition_by)


def open_lake(
    scope: Scope, lake: Lake, at: Snapshot, selected: Sequence[Control], progress: Progress = no_progress
) -> Session:
    """Return a session over `lake` at `at` with every table and fact that `selected` needs."""
    session = Session(scope)
    try:
        files = session.load_lake(lake, at, lake_tables(selected))
        session.build_facts(selected, session.event_parts(files, _partitions(SNAPSHOT_TABLES["events"], at)), progress)
    except BaseException:
        session.__exit__()
        raise
    return session


def may_be_in_scope(file: DataFile, scope: Scope) -> bool:
    """Whether a file's partition, or its statistics, allow a row of the scope's tenant and days."""
    tenant = file.partition.get("tenant")
    if scope.tenant is not None and tenant is not None and tenant != scope.tenant:
        return False
    low, high = (_day(file, bounds) for bounds in (file.minimum, file.maximum))
    return (low is None or low <= scope.last) and (high is None or high >= scope.first)


def _day(file: DataFile, bounds: dict[str, Any]) -> dt.date | None:
    day = file.partition.get("started_on", bounds.get("started_on"))
    if isinstance(day, dt.datetime):
        return day.date()
    return dt.date.fromisoformat(day) if isinstance(day, str) else day


def select_from(
    table: Table, variable: str, partitions: tuple[str, ...], columns: Iterable[str], *more_options: str
) -> str:
    """Return the select of `columns` over the files that a session variable lists. All words of it are ours."""
    types = {column.name: DUCKDB_TYPES[column.type] for column in table.columns}
    options = [f"hive_partitioning = {'true' if partitions else 'false'}", *more_options]
    if partitions:
        hive = ", ".join(f"'{name}': {types[name]}" for name in partitions if name in types)
        options.append(f"hive_types = {{{hive}}}")
    named = ", ".join(column if column == "*" else identifier(column) for column in columns)
    return f"select {named} from read_parquet(getvariable('{variable}'), {', '.join(options)})"


def stretches(files: Sequence[DataFile]) -> Iterator[tuple[list[DataFile], int | None, int | None]]:
    """Yield groups of files of at most PART_ROWS rows together; of a longer file its ranges of rows, both ends in."""
    group: list[DataFile] = []
    rows = 0
    for file in files:
        if file.rows > PART_ROWS * 3 // 2:
            for first in range(0, file.rows, PART_ROWS):
                yield [file], first, first + PART_ROWS - 1
            continue
        if group and rows + file.rows > PART_ROWS:
            yield group, None, None
            group, rows = [], 0
        group.append(file)
        rows += file.rows
    if group:
        yield group, None, None
