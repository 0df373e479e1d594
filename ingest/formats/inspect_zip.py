"""Members of a `.eval` archive: stored, deflated or zstd (ZIP method 93, which the standard library cannot read).

Names are keys, never paths: nothing is ever extracted. A member is unpacked to memory, a large one to an unnamed
temporary file that is mapped, so that memory stays bounded by what is read of it. Bombs are refused by what a
member unpacks to, and by members that share bytes of the archive.
"""

from __future__ import annotations

import io
import mmap
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, Final, cast

from ..sources import Source
from .contract import BadSource
from .json_spans import Buffer

ZSTD: Final = 93
MEMBER_FREE_BYTES: Final = 1 << 30
"""A member may unpack to this much whatever its ratio; above it to MEMBER_RATIO_MAX times its packed size."""
MEMBER_RATIO_MAX: Final = 200
MAPPED_FROM_BYTES: Final = 8 << 20
MEMBERS_MAX: Final = 1_000_000
_CHUNK: Final = 1 << 20
_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")


class DamagedMember(Exception):
    """One member cannot be read; the others can. The message says why."""


class Archive:
    """The members of one archive, by name. Raises `BadSource` where it is no whole ZIP file."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        stream = source.open()
        self._stream: BinaryIO = stream if stream.seekable() else cast(BinaryIO, _spooled(stream))
        try:
            self._zip = zipfile.ZipFile(self._stream)
        except (zipfile.BadZipFile, struct.error, ValueError, OverflowError, NotImplementedError) as error:
            raise BadSource(source.name, "", f"is no whole ZIP archive ({error}); it may be cut short") from None
        found = self._zip.infolist()
        if len(found) > MEMBERS_MAX:
            raise BadSource(source.name, "", f"holds {len(found)} members, more than {MEMBERS_MAX}")
        _refuse_overlaps(source.name, found)
        self.repeated = len(found) - len({info.filename for info in found})
        self._members = {info.filename: info for info in found}

    def names(self) -> list[str]:
        """Return the names in the order they were written."""
        return sorted(self._members, key=lambda name: self._members[name].header_offset)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> Buffer:
        """Return a member's unpacked bytes, whole and checked. Raises `DamagedMember`."""
        info = self._members[name]
        allowed = max(MEMBER_FREE_BYTES, MEMBER_RATIO_MAX * info.compress_size)
        if info.file_size > allowed:
            raise DamagedMember(f"would unpack to {info.file_size} bytes, refused as a possible bomb")
        is_large = info.file_size >= MAPPED_FROM_BYTES
        target: IO[bytes] = tempfile.TemporaryFile() if is_large else io.BytesIO()  # noqa: SIM115 - is mapped below
        size, checksum = 0, 0
        try:
            for chunk in self._chunks(info):
                size += len(chunk)
                if size > info.file_size:
                    raise DamagedMember(f"unpacks to more than the {info.file_size} bytes it states")
                checksum = zlib.crc32(chunk, checksum)
                target.write(chunk)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise DamagedMember(f"cannot be unpacked ({error})") from None
        if size != info.file_size or checksum != info.CRC:
            raise DamagedMember("its checksum or size is wrong")
        if isinstance(target, io.BytesIO):
            return target.getvalue()
        target.flush()
        return mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ)

    def _chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        if info.compress_type != ZSTD:
            with self._zip.open(info) as member:
                while chunk := member.read(_CHUNK):
                    yield chunk
            return
        try:
            import zstandard
        except ImportError:
            raise DamagedMember("is packed with zstd: install the package 'zstandard' (extra 'lake')") from None
        try:
            with zstandard.ZstdDecompressor().stream_reader(self._packed(info), read_across_frames=True) as member:
                while chunk := member.read(_CHUNK):
                    yield chunk
        except zstandard.ZstdError as error:
            raise DamagedMember(f"cannot be unpacked ({error})") from None

    def _packed(self, info: zipfile.ZipInfo) -> IO[bytes]:
        self._stream.seek(info.header_offset)
        header = self._stream.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise DamagedMember("has no local header where the directory says")
        *_, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        start = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        return cast("IO[bytes]", _Window(self._stream, start, info.compress_size))


class _Window(io.RawIOBase):
    """`size` bytes of a stream from `start`."""

    def __init__(self, stream: BinaryIO, start: int, size: int) -> None:
        self._stream, self._at, self._left = stream, start, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        self._stream.seek(self._at)
        data = self._stream.read(min(len(view), self._left))
        view[: len(data)] = data
        self._at += len(data)
        self._left -= len(data)
        return len(data)


def spool(source: Source) -> Buffer:
    """Return a source's unpacked bytes; large ones mapped from an unnamed temporary file."""
    with source.open() as stream:
        head = stream.read(MAPPED_FROM_BYTES)
        if len(head) < MAPPED_FROM_BYTES:
            return head
        target = tempfile.TemporaryFile()  # noqa: SIM115 - the mapping outlives this function
        while head:
            target.write(head)
            head = stream.read(_CHUNK)
    target.flush()
    return mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ)


def _spooled(stream: BinaryIO) -> IO[bytes]:
    target = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the archive
    while chunk := stream.read(_CHUNK):
        target.write(chunk)
    target.seek(0)
    return target


def _refuse_overlaps(name: str, found: list[zipfile.ZipInfo]) -> None:
    """A bomb of members that share packed bytes unpacks to far more than its size."""
    end = 0
    for info in sorted(found, key=lambda one: one.header_offset):
        if info.header_offset < end:
            raise BadSource(name, ascii(info.filename[:80]), "shares bytes with another member: refused as a bomb")
        end = info.header_offset + _LOCAL_HEADER.size + info.compress_size
