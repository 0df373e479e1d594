"""What a landing already holds, byte for byte: asked before anything leaves the root for good.

A folder is read here; any other landing through what `ingest` registers under `landing_files` in the entry-point
group `trajlake.stores` (the arrow between the packages points the other way).
"""

from __future__ import annotations

from hashlib import sha256 as sha256_of
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from trajlake.schemas.blobs import blob_hashes

from ..env import Env, read_file
from ..root import Root
from ..stores import STORES_GROUP, local_folder
from ..wal.journal_errors import RootError
from ..wal.reader import SegmentFile, read_segment

LANDING_FILES: Final = "landing_files"
NAMES_A_BLOB: Final = (b'"$blob"', b'"changes"')


class LandedFiles(Protocol):
    """Reads a landing. Other failures than absence raise OSError."""

    url: str

    def get(self, path: str) -> bytes | None:
        """Return what stands there, or None."""
        ...


class LandedFolder:
    """A landing in a folder of this host."""

    def __init__(self, folder: str, env: Env) -> None:
        self.url = folder
        self._env = env

    def get(self, path: str) -> bytes | None:
        try:
            return read_file(self._env, f"{self.url}/{path}")
        except FileNotFoundError:
            return None


def open_landed(url: str, env: Env) -> LandedFiles:
    """Return the landing at a folder or URL. Raises `RootError` where nothing installed can read it."""
    folder = local_folder(url)
    if folder is not None:
        return LandedFolder(env.absolute(folder), env)
    for point in entry_points(group=STORES_GROUP):
        if point.name == LANDING_FILES:
            opened: Any = point.load()(url, env)
            found: LandedFiles = opened
            return found
    raise RootError(f"landing {url}: nothing installed here reads it; install trajlake with 'ingest'")


class LandedCheck:
    """Answers, for one root and one landing, whether a segment may go. Blobs seen once are not read again."""

    def __init__(self, root: Root, landed: LandedFiles) -> None:
        self._root = root
        self._landed = landed
        self._held: set[tuple[str, str]] = set()

    def missing(self, segment: SegmentFile) -> str:
        """Return why a sealed segment may not go yet: what the landing lacks; "" if it holds all of it, unchanged."""
        name = f"writers/{segment.header.writer}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
        data = read_file(self._root.env, segment.path)
        there = self._landed.get(name)
        if there is None:
            return f"{name} is not in the landing"
        if there != data:
            return f"{name} in the landing has other bytes; run 'trajlake journal verify' here, then ship again"
        for tenant, sha256 in sorted(segment_blobs(self._root.env, segment, data)):
            if (tenant, sha256) in self._held:
                continue
            blob = self._landed.get(f"blobs/{tenant}/{sha256[:2]}/{sha256}")
            if blob is None or sha256_of(blob).hexdigest() != sha256:
                return f"blob {sha256} of {tenant} is {'damaged' if blob is not None else 'not'} in the landing"
            self._held.add((tenant, sha256))
        return ""


def segment_blobs(env: Env, segment: SegmentFile, data: bytes) -> set[tuple[str, str]]:
    """Return (tenant, sha256) of every blob that the events of a segment name. `data`: its bytes."""
    if not any(mark in data for mark in NAMES_A_BLOB):
        return set()
    found: set[tuple[str, str]] = set()
    for event in read_segment(env, segment.path).events():
        found.update((event.tenant, sha256) for sha256 in blob_hashes(event.type, event.payload))
    return found
