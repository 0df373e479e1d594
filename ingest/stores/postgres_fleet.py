"""The fleet's status from the warm tier: what `trajlake status --warm URL` shows."""

from __future__ import annotations

from typing import Any

from .postgres_database import Connection, Database
from .sql_text import statement


class PostgresFleet:
    """Answers from the view `status`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, tenant: str | None = None, *, open_only: bool = False, limit: int = 1000) -> list[dict[str, Any]]:
        named = {"tenant": tenant, "open_only": open_only, "row_limit": limit}

        def ask(connection: Connection) -> list[dict[str, Any]]:
            cursor = connection.execute(statement("status_page"), named)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

        return self._database.run(ask)
