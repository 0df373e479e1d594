"""A database with nothing in it for each test, and journals to fill it from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.postgres import schema_url


class Warm:
    """A fresh schema: its URL, and questions to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query, values or None).fetchall()

    def value(self, query: str, *values: object) -> Any:
        return self.rows(query, *values)[0][0]


@pytest.fixture
def warm() -> Iterator[Warm]:
    with schema_url() as url:
        yield Warm(url)
