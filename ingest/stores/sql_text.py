"""SQL of the warm tier, read from the package `trajlake.sql`: texts are never put together from data."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def ddl(name: str) -> bytes:
    """Return the text of `sql/warm/<name>.sql`."""
    return files("trajlake.sql").joinpath("warm", f"{name}.sql").read_bytes()


@functools.cache
def statement(name: str) -> bytes:
    """Return the text of `sql/warm/statements/<name>.sql`, without its header: what goes over the wire each time."""
    lines = files("trajlake.sql").joinpath("warm", "statements", f"{name}.sql").read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"--"))
