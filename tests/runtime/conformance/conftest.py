"""The backends that every lease and mail store test runs against. A new store adds itself here and nowhere else.

A `Backend` opens clients: each call stands for another process on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trajlake.runtime.file_arbiter import FileArbiter
from trajlake.runtime.file_lease import FileLeaseStore
from trajlake.runtime.file_mail import FileMailStore
from trajlake.runtime.generations import Arbiter
from trajlake.runtime.lease import LeaseStore
from trajlake.runtime.mail import MailStore


@dataclass(frozen=True)
class Backend:
    leases: Callable[[], LeaseStore]
    mail: Callable[[], MailStore]
    arbiter: Callable[[], Arbiter]


def file_backend(folder: Path) -> Iterator[Backend]:
    root = str(folder)
    yield Backend(
        # Nobody is known to be dead: what a dead writer means is the file store's own test.
        leases=lambda: FileLeaseStore(root, writer_is_dead=lambda writer: False),
        mail=lambda: FileMailStore(root),
        arbiter=lambda: FileArbiter(root),
    )


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {"file": file_backend}


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from BACKENDS[request.param](tmp_path)
