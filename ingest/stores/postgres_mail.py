"""Mail and the arbiter of generations in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

from trajlake.runtime.mailbox.mail import MailConflict, MailItem, decode_item, encode_item

from .postgres_database import Connection, Database
from .sql_text import statement


class PostgresMailStore:
    """A `MailStore` over `trajectory_mail`. Any thread and process may call."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def post(self, item: MailItem) -> bool:
        text = encode_item(item)
        named = {"tenant": item.tenant, "trajectory_id": item.trajectory_id, "mail_id": item.id}

        def post(connection: Connection) -> bool | None:
            """True: created; False: there with these contents; None: there with others."""
            more = {"kind": item.kind, "posted_at": item.posted_at, "body": text}
            if connection.execute(statement("mail_post"), named | more).fetchone() is not None:
                return True
            there = connection.execute(statement("mail_read"), named).fetchone()
            return False if there is None or bytes(there[0]) == text else None

        created = self._database.run(post)
        if created is None:
            raise MailConflict(f"mail {item.id} for {item.trajectory_id!r} is waiting already, with other contents")
        return created

    def waiting(self, tenant: str, trajectory_id: str) -> list[MailItem]:
        named = {"tenant": tenant, "trajectory_id": trajectory_id}
        rows = self._database.run(lambda c: c.execute(statement("mail_waiting"), named).fetchall())
        return [decode_item(bytes(body), f"trajectory_mail {trajectory_id!r} {name}") for name, body in rows]

    def delete(self, item: MailItem) -> None:
        named = {"tenant": item.tenant, "trajectory_id": item.trajectory_id, "mail_id": item.id}
        self._database.run(lambda c: c.execute(statement("mail_delete"), named))

    def trajectories(self) -> Iterator[tuple[str, str]]:
        rows = self._database.run(lambda c: c.execute(statement("mail_trajectories")).fetchall())
        yield from rows


class PostgresArbiter:
    """An `Arbiter` over `trajectory_generations`. Where an answer is lost, the next generation is taken: see there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, key: str, generation: int, body: bytes) -> bool:
        named = {"key": key, "generation": generation, "body": body}
        return self._database.run(lambda c: c.execute(statement("generation_create"), named).fetchone() is not None)
