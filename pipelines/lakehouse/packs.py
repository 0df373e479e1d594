"""Packs: objects of the content store that hold many blobs, compressed as one, because they resemble one another.

Sources of imports stand in packs: sessions read the same files, begin with the same prompts, and one that has grown
since holds all of its older self. An object `cas/<tenant>/packs/ab/cdef….<run>` is a zstd skippable frame with the list
of its blobs (JSON, `[[sha256, bytes], …]`; the object is named by the hash of it), then one frame of their bytes, in
that order.

Erasure stands on one rule: **a blob leaves a pack with all the others.** Those that stay move to another pack in the
same run (`moved`), so that nothing names the old one any more.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec
import zstandard

from trajlake.pipelines.lakehouse.content_store import (
    ContentStore,
    StoredBlob,
    folder_of,
    is_packed,
    object_of,
    object_path,
    sync_objects,
    write_object,
)
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged, LakeError
from trajlake.pipelines.lakehouse.places import read

FOLDER: Final = "packs"
PACK_BYTES: Final = 8 * 1024 * 1024
"""What a pack unpacks to at most: reading a blob unpacks all before it, some 4 ms. Larger blobs stand alone."""
LEVEL: Final = 3
_WINDOW_LOG: Final = 23
"""A blob is compared with all before it in its pack."""
_SKIPPABLE: Final = struct.Struct("<II")
_MAGIC: Final = 0x184D2A50


class Packer:
    """Puts blobs into packs of one run, a tenant's into its own. Not for several threads; nothing is synced."""

    def __init__(self, lake: str, run: str, level: int = LEVEL) -> None:
        self._lake = lake
        self._run = run
        self._level = level
        self._open: dict[str, _Pack] = {}
        self._stored: dict[tuple[str, str], StoredBlob] = {}

    def put(self, tenant: str, digest: str, data: bytes) -> None:
        """Take the bytes of a blob, once. Raises `BlobDamaged` if they are not those the digest promises."""
        pack = self._open.get(tenant)
        if (tenant, digest) in self._stored or (pack is not None and digest in pack.sizes):
            return
        if len(data) >= PACK_BYTES:
            self._stored[tenant, digest] = ContentStore(self._lake).put(tenant, digest, data, self._run)
            return
        if sha256(data).hexdigest() != digest:
            raise BlobDamaged(f"blob {digest} of tenant {tenant}: the bytes are others")
        if pack is not None and pack.bytes + len(data) > PACK_BYTES:
            self._close(tenant)
            pack = None
        if pack is None:
            pack = self._open[tenant] = _Pack(self._level)
        pack.add(digest, data)

    def close(self) -> list[StoredBlob]:
        """Write what is open; return the row of every blob taken."""
        for tenant in list(self._open):
            self._close(tenant)
        return list(self._stored.values())

    def _close(self, tenant: str) -> None:
        pack = self._open.pop(tenant)
        index = msgspec.json.encode(list(pack.sizes.items()))
        packed = _SKIPPABLE.pack(_MAGIC, len(index)) + index + pack.packed()
        name = sha256(index).hexdigest()
        path = f"{folder_of(tenant)}/{FOLDER}/{name[:2]}/{name[2:]}.{self._run}"
        size = write_object(self._lake, path, packed)
        first = 0
        for digest, bytes_ in pack.sizes.items():
            last = first + bytes_
            share = size * last // pack.bytes - size * first // pack.bytes if pack.bytes else size
            self._stored[tenant, digest] = StoredBlob(
                tenant=tenant, sha256=digest, bytes=bytes_, stored_bytes=share, path=f"{path}#{first}+{bytes_}",
                run=int(self._run.split("-", maxsplit=1)[0]),
            )  # fmt: skip
            first = last


class _Pack:
    """A pack that is being filled."""

    def __init__(self, level: int) -> None:
        settings = zstandard.ZstdCompressionParameters.from_level(level, window_log=_WINDOW_LOG)
        self._stream: Any = zstandard.ZstdCompressor(compression_params=settings).compressobj()
        self._parts: list[bytes] = []
        self.sizes: dict[str, int] = {}
        self.bytes = 0

    def add(self, digest: str, data: bytes) -> None:
        self.sizes[digest] = len(data)
        self.bytes += len(data)
        self._parts.append(self._stream.compress(data))

    def packed(self) -> bytes:
        return b"".join([*self._parts, self._stream.flush()])


def moved(lake: str, blobs: Iterable[StoredBlob], run: str, level: int = LEVEL) -> list[StoredBlob]:
    """Put blobs into packs of `run`, durably, object by object in the order given; return their new rows.

    One that cannot be read comes into no pack: its row then names an object of its own, which is missing.
    """
    packer = Packer(lake, run, level)
    lost = []
    for blob, data in ContentStore(lake).get_all(blobs):
        if isinstance(data, LakeError):
            lost.append(msgspec.structs.replace(blob, path=object_path(blob.tenant, blob.sha256, run)))
        else:
            packer.put(blob.tenant, blob.sha256, data)
    found = packer.close()
    sync_objects(lake, found)
    return found + lost


def each_once(
    lake: str, stored: Iterable[StoredBlob], run: str, without: Container[tuple[str, str]] = ()
) -> list[StoredBlob]:
    """Return what a run has stored, each blob once and none of `without`.

    No row may name a pack that holds a blob which is not returned from there: all others move out of it.
    """
    once: dict[tuple[str, str], StoredBlob] = {}
    left = set()
    for blob in stored:
        key = (blob.tenant, blob.sha256)
        if (key in without or once.setdefault(key, blob) is not blob) and is_packed(blob.path):
            left.add(object_of(blob.path))
    wanted = [blob for key, blob in once.items() if key not in without]
    stay = [blob for blob in wanted if object_of(blob.path) not in left]
    return stay + moved(lake, sorted((b for b in wanted if object_of(b.path) in left), key=lambda b: b.path), run)


def blobs_in(path: str) -> set[str]:
    """Return the digests of the blobs in the pack at `path`; none where it is damaged. Raises `FileNotFoundError`."""
    packed = read(path)
    try:
        magic, size = _SKIPPABLE.unpack_from(packed)
        listed = msgspec.json.decode(packed[_SKIPPABLE.size : _SKIPPABLE.size + size], type=list[tuple[str, int]])
    except (struct.error, msgspec.MsgspecError):
        return set()
    return {digest for digest, _ in listed} if magic == _MAGIC else set()
