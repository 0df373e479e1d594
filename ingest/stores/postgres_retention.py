"""Retention of the warm tier: what has ended and is elsewhere leaves PostgreSQL; its head stays."""

from __future__ import annotations

from dataclasses import dataclass, field

from .postgres_database import Connection, Database
from .sql_text import statement


@dataclass(slots=True)
class EndedHere:
    """An ended trajectory with rows in the warm tier. `journals`: writer (hex) to the last lsn that is here."""

    tenant: str
    trajectory_id: str
    last_sequence: int
    journals: dict[str, int] = field(default_factory=dict)


class WarmRetention:
    """Lists what may leave, and lets it leave, one trajectory a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.shown

    def ended_before(self, moment_s: float) -> list[EndedHere]:
        """Return what ended before `moment_s` (seconds since 1970), has nothing open, and still has rows."""

        def read(connection: Connection) -> list[EndedHere]:
            found: dict[tuple[str, str], EndedHere] = {}
            for tenant, name, last, writer, lsn in connection.execute(
                statement("left_candidates"), {"before_s": moment_s}
            ):
                one = found.setdefault((tenant, name), EndedHere(tenant, name, int(last)))
                one.journals[writer] = int(lsn)
            return list(found.values())

        return self._database.run(read)

    def leave(self, one: EndedHere, head_hash: str, snapshot: int) -> int:
        """Take its rows out, if its head is the given one and every row is of `one.journals`; -1 if not, else how many.

        The caller has seen that `snapshot` of a lake holds these journals as far; a row that came since stays.
        """

        def take(connection: Connection) -> int:
            row = connection.execute(
                "select leave_to_lake(%s, %s, %s, %s, %s, %s, %s)",
                (
                    one.tenant,
                    one.trajectory_id,
                    one.last_sequence,
                    bytes.fromhex(head_hash),
                    snapshot,
                    list(one.journals),
                    list(one.journals.values()),
                ),
            ).fetchone()
            return -1 if row is None else int(row[0])

        return self._database.run(take)

    def close(self) -> None:
        self._database.close()
