"""The stores that a root names: files in the root itself, or what an extra brings for a URL.

`root.json` maps `lease`, `mail`, `replica`, `landing` to URLs; without one, files in the root serve. A URL's scheme is
looked up in the entry-point group `trajlake.stores`, whose value is called with (kind, url) and returns an object of
the protocol that `kind` names: "lease", "mail", "arbiter", "replica" or "source".
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from .env import Env
from .leases.file_arbiter import FileArbiter
from .leases.file_lease import FileLeaseStore
from .leases.generations import Arbiter
from .leases.lease import LeaseStore, Tenure
from .mailbox.file_mail import FileMailStore
from .mailbox.mail import MailStore
from .replicas.recover_from import LandingFolder, Source
from .replicas.replica import Replica
from .root import Root
from .wal.journal_errors import RootError


class Fleet(Protocol):
    """Many roots' trajectories, as the warm tier knows them."""

    def rows(self, tenant: str | None = None, *, open_only: bool = False, limit: int = 1000) -> list[dict[str, Any]]:
        """Return one row per trajectory, that which moved last first: the columns of the view `status`."""
        ...


STORES_GROUP: Final = "trajlake.stores"


def lease_store(root: Root) -> LeaseStore:
    """Return the store of the root's leases. Raises `RootError` for a URL nobody here can open."""
    url = root.facts.stores.get("lease")
    if url is None:
        return FileLeaseStore(root.path, env=root.env)

    def is_dead(tenure: Tenure) -> bool:
        """A writer of this root whose LOCK is free: its process is gone, its lease may be taken at once."""
        here = tenure.host == root.env.host() and tenure.writer in root.writers()
        return here and not root.is_alive(tenure.writer)

    store: LeaseStore = _open("lease", url, is_dead=is_dead)
    return store


def mail_store(root: Root) -> MailStore:
    """Return the store of the root's mail: the lease's backend unless `root.json` names another."""
    url = root.facts.stores.get("mail", root.facts.stores.get("lease"))
    store: MailStore = FileMailStore(root.path, env=root.env) if url is None else _open("mail", url)
    return store


def arbiter(root: Root) -> Arbiter:
    """Return the one place where generations are taken: the landing, else the replica, else the root."""
    url = root.facts.stores.get("landing", root.facts.stores.get("replica"))
    if url is None:
        return FileArbiter(root.path, env=root.env)
    folder = local_folder(url)
    if folder is not None:
        return FileArbiter(root.env.absolute(folder), env=root.env)
    found: Arbiter = _open("arbiter", url)
    return found


def replica(root: Root) -> Replica | None:
    """Return the root's replica, None if it has none. Raises `RootError` for a URL nobody here can open."""
    url = root.facts.stores.get("replica")
    found: Replica | None = None if url is None else _open("replica", url)
    return found


def fleet(url: str) -> Fleet:
    """Return the warm tier at `url` as something to ask for status. Raises `RootError` if nobody here opens it."""
    found: Fleet = _open("fleet", url)
    return found


def source_at(url: str, env: Env) -> Source:
    """Return what `recover --from URL` reads: a landing or replica. Raises `RootError` if nobody here opens it."""
    folder = local_folder(url)
    if folder is not None:
        return LandingFolder(env, folder)
    found: Source = _open("source", url)
    return found


def local_folder(url: str) -> str | None:
    """Return the path that a URL means on this host, None if it means another place."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return unquote(parts.path)
    return None if parts.scheme else url


def _open(kind: str, url: str, **more: Any) -> Any:
    scheme = urlsplit(url).scheme
    for point in entry_points(group=STORES_GROUP):
        if point.name == scheme:
            return point.load()(kind, url, **more)
    raise RootError(
        f"{kind} store with scheme {scheme!r}: nothing installed here opens it; install the extra that does"
    )
