"""The content store of a lake: `cas/<tenant>/sha256/ab/cdef….<run>`, zstd, written once per run, verified on read.

An object carries the name of the run that wrote it, so that vacuum can tell when it is decided; a run uses an older
object only where `blobs` of its snapshot names it, and verifies it then. Tenants share nothing.

Sources of imports stand together in packs (`packs.py`): such a blob's `path` is `<object>#<offset>+<bytes>`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import groupby
from typing import Any, Final

import msgspec
import zstandard

from trajlake.pipelines.lakehouse.durable_files import FILE_MODE, make_directory
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged, LakeError, LakeMissing
from trajlake.pipelines.lakehouse.places import is_remote, open_place, put_if_absent, read, sync_all

LEVEL: Final = 3
DIRECTORY: Final = "cas"


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob: a row of the table `blobs`. `path` is below the lake: an object, or a range of one."""

    tenant: str
    sha256: str
    bytes: int
    stored_bytes: int
    path: str
    run: int


def object_path(tenant: str, digest: str, run: str) -> str:
    """Return the path of an object below the lake. A tenant called `.` or `..` stays a name, in all of these."""
    return f"{folder_of(tenant)}/sha256/{digest[:2]}/{digest[2:]}.{run}"


def folder_of(tenant: str) -> str:
    """Return the folder (below the lake) of a tenant's objects."""
    return f"{DIRECTORY}/{tenant if tenant.strip('.') else tenant.replace('.', '%2E')}"


def object_of(path: str) -> str:
    """Return the object (below the lake) that holds the blob with this `path`."""
    return path.partition("#")[0]


def place_of(path: str) -> int:
    """Return where in the bytes of its object the blob with this `path` begins."""
    return int(path.partition("#")[2].partition("+")[0] or 0)


def is_packed(path: str) -> bool:
    """Tell whether the blob with this `path` shares its object with others."""
    return "#" in path


class ContentStore:
    """Objects of one lake. Any number of processes may put and get at once."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        open_place(lake)

    def get(self, tenant: str, digest: str, path: str) -> bytes:
        """Return the bytes of a blob by its `blobs` row. Raises `LakeMissing`, `BlobDamaged` on any difference."""
        found = next(self._read(object_of(path), [(tenant, digest, path)]))
        if isinstance(found, LakeError):
            raise found
        return found

    def get_all(self, blobs: Iterable[StoredBlob]) -> Iterator[tuple[StoredBlob, bytes | LakeError]]:
        """Yield every blob with its bytes, or with what `get` raises.

        Blobs of one object that stand together are read at once, and come in the order of their places in it.
        """
        for name, inside in groupby(blobs, lambda blob: object_of(blob.path)):
            rows = sorted(inside, key=lambda blob: place_of(blob.path))
            yield from zip(rows, self._read(name, [(row.tenant, row.sha256, row.path) for row in rows]), strict=True)

    def _read(self, name: str, blobs: list[tuple[str, str, str]]) -> Iterator[bytes | LakeError]:
        """Yield the bytes of blobs (tenant, digest, path) of one object, in the order of their places in it."""
        where = os.path.join(self._lake, name)
        try:
            packed = read(where)
        except FileNotFoundError:
            for tenant, digest, _ in blobs:
                yield LakeMissing(f"{where}: the content of blob {digest} of tenant {tenant} is missing")
            return
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream:
            for _, digest, path in blobs:
                yield _checked(packed, stream, where, digest, path)

    def put(self, tenant: str, digest: str, data: bytes, run: str) -> StoredBlob:
        """Store bytes under the run's name, whole, unless this run has done so; return the object's row.

        Raises `BlobDamaged` if the bytes are not those the name promises. The file is not synced: a run syncs
        what it names before it commits.
        """
        computed = sha256(data).hexdigest()
        if computed != digest:
            raise BlobDamaged(f"blob {digest} of tenant {tenant}: the landed bytes hash to {computed}")
        relative = object_path(tenant, digest, run)
        path = os.path.join(self._lake, relative)
        is_there = not is_remote(path) and os.path.exists(path)
        stored_bytes = os.path.getsize(path) if is_there else write_object(self._lake, relative, _packed(data))
        return StoredBlob(
            tenant=tenant,
            sha256=digest,
            bytes=len(data),
            stored_bytes=stored_bytes,
            path=relative,
            run=int(run.split("-", maxsplit=1)[0]),
        )


def _checked(packed: bytes, stream: Any, where: str, digest: str, path: str) -> bytes | LakeError:
    """Return the bytes of the blob with this `path`; `stream` unpacks `packed`, up to here so far."""
    mend = "restore it or erase what names it"
    try:
        if is_packed(path):
            stream.seek(place_of(path))
            data = stream.read(int(path.rpartition("+")[2]))
        else:
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=1 << 40)
    except (zstandard.ZstdError, MemoryError, ValueError) as error:
        return BlobDamaged(f"{where}: does not decompress: {error}; {mend}")
    computed = sha256(data).hexdigest()
    return data if computed == digest else BlobDamaged(f"{where}: its bytes hash to {computed}; {mend}")


def sync_objects(lake: str, blobs: Iterable[StoredBlob]) -> None:
    """Make the objects of blobs durable, as they must be before a run that names them is committed."""
    sync_all([os.path.join(lake, name) for name in {object_of(blob.path) for blob in blobs}], lake)


def write_object(lake: str, name: str, packed: bytes) -> int:
    """Write an object whole, unless this run has done so; return its size. It is not synced."""
    path = os.path.join(lake, name)
    if is_remote(path):
        put_if_absent(path, packed)  # what another worker of this run put there are the same bytes
        return len(packed)
    make_directory(os.path.dirname(path))
    temporary = f"{path}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(packed)
    os.replace(temporary, path)
    return len(packed)


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)
