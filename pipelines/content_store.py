"""The content store of a lake: `cas/<tenant>/sha256/ab/cdef….<run>`, zstd, written once per run, verified on read.

An object carries the name of the run that wrote it, so that vacuum can tell when it is decided; a run uses an older
object only where `blobs` of its snapshot names it, and verifies it then. Tenants share nothing.
"""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from typing import Final

import msgspec
import zstandard

from trajlake.pipelines.durable_files import FILE_MODE, make_directory
from trajlake.pipelines.lake_errors import BlobDamaged, LakeMissing
from trajlake.pipelines.places import is_remote, open_place, put_if_absent, read

LEVEL: Final = 3
DIRECTORY: Final = "cas"


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """An object: a row of the table `blobs`. `path` is below the lake."""

    tenant: str
    sha256: str
    bytes: int
    stored_bytes: int
    path: str
    run: int


def object_path(tenant: str, digest: str, run: str) -> str:
    """Return the path of an object below the lake. A tenant called `.` or `..` stays a name."""
    folder = tenant if tenant.strip(".") else tenant.replace(".", "%2E")
    return f"{DIRECTORY}/{folder}/sha256/{digest[:2]}/{digest[2:]}.{run}"


class ContentStore:
    """Objects of one lake. Any number of processes may put and get at once."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        open_place(lake)

    def get(self, tenant: str, digest: str, path: str) -> bytes:
        """Return the bytes of an object by its `blobs` row. Raises `LakeMissing`, `BlobDamaged` on any difference."""
        where = os.path.join(self._lake, path)
        try:
            packed = read(where)
        except FileNotFoundError:
            raise LakeMissing(f"{where}: the content of blob {digest} of tenant {tenant} is missing") from None
        try:
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=1 << 40)
        except (zstandard.ZstdError, MemoryError) as error:
            raise BlobDamaged(f"{where}: does not decompress: {error}; restore it or erase what names it") from None
        computed = sha256(data).hexdigest()
        if computed != digest:
            raise BlobDamaged(f"{where}: its bytes hash to {computed}; restore it or erase what names it")
        return data

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
        stored_bytes = _put_object(path, data) if is_remote(path) else _put_file(path, data)
        return StoredBlob(
            tenant=tenant,
            sha256=digest,
            bytes=len(data),
            stored_bytes=stored_bytes,
            path=relative,
            run=int(run.split("-", maxsplit=1)[0]),
        )


def _put_file(path: str, data: bytes) -> int:
    if not os.path.exists(path):
        make_directory(os.path.dirname(path))
        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_packed(data))
        os.replace(temporary, path)
    return os.path.getsize(path)


def _put_object(path: str, data: bytes) -> int:
    packed = _packed(data)
    put_if_absent(path, packed)  # what another worker of this run put there are the same bytes
    return len(packed)


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)
