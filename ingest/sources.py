"""Where source bytes come from: files, directories, globs, gzip, zstd, standard input, fsspec URLs.

A `Source` is one file. Its bytes are read through `Source.open`, decompressed by content (magic bytes, not
names) and bounded: a stream that unpacks to more than `unpacked_max_bytes` is refused, so that a few
kilobytes cannot fill the disk or the memory.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, BinaryIO, Final, cast

import msgspec

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
HEAD_SIZE: Final = 65_536
LINE_SIZE_MAX_BYTES: Final = 256 * 1024 * 1024
DOCUMENT_SIZE_MAX_BYTES: Final = 1024 * 1024 * 1024
UNPACKED_RATIO_MAX: Final = 100
UNPACKED_FREE_BYTES: Final = 64 * 1024 * 1024
"""A stream may unpack to this much whatever its ratio; above it to UNPACKED_RATIO_MAX times its size."""
SESSION_SUFFIXES: Final = (
    ".jsonl", ".json", ".traj", ".eval", ".ndjson",
    ".jsonl.gz", ".json.gz", ".traj.gz", ".ndjson.gz", ".jsonl.zst", ".json.zst", ".traj.zst", ".ndjson.zst",
)  # fmt: skip
"""What is looked for inside a directory; a file named on the command line may have any name."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its line end; `number` from 1. `whole` is False for a last line that has no line end.

    `offset` is where it begins in the unpacked source.
    """

    number: int
    data: bytes
    whole: bool
    offset: int = 0


def shown(name: str) -> str:
    """Return a file's name as text: bytes that are no UTF-8, which a name may hold and a record may not, escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Source:
    """One source file. `name` is what messages show; `opener` gives the bytes as stored, from the start."""

    def __init__(self, name: str, opener: Callable[[], IO[bytes]], *, size: int | None = None, path: str = "") -> None:
        self.name = shown(name)
        self.path = path
        self.size = size
        self._opener = opener
        self._head: bytes | None = None

    @classmethod
    def of_bytes(cls, data: bytes, name: str = "<bytes>") -> Source:
        """Return a source that holds `data` itself (tests, standard input, members of archives)."""
        return cls(name, lambda: io.BytesIO(data), size=len(data))

    @classmethod
    def of_path(cls, path: str) -> Source:
        """Return the source behind a local path."""
        return cls(path, lambda: open(path, "rb"), size=os.path.getsize(path), path=path)

    @property
    def stem(self) -> str:
        """Return the file's name without directories and known endings."""
        base = shown(os.path.basename(self.path or self.name))
        for suffix in sorted(SESSION_SUFFIXES, key=len, reverse=True):
            if base.endswith(suffix):
                return base[: -len(suffix)]
        return base

    @property
    def is_local(self) -> bool:
        """Whether `path` is a file of this host, which another process finds as well."""
        return bool(self.path) and self.name == self.path

    def stored(self) -> IO[bytes]:
        """Open the bytes as stored, compressed or not."""
        return self._opener()

    def sha256(self) -> str:
        """Return the hash (hex) of the bytes as stored."""
        digest = hashlib.sha256()
        with self.stored() as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest()

    def open(self) -> BinaryIO:
        """Open the unpacked bytes. Reading raises `UserError` where they pass the limit or the packing is damaged."""
        raw = self._opener()
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == GZIP_MAGIC:
            unpacked = cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
        elif magic == ZSTD_MAGIC:
            unpacked = _zstd_stream(raw)
        else:
            return cast(BinaryIO, raw)
        return cast(BinaryIO, io.BufferedReader(_Bounded(unpacked, self), 1 << 18))

    def head(self) -> bytes:
        """Return the first HEAD_SIZE unpacked bytes, fewer where the packing breaks off (at once: that is raised)."""
        if self._head is None:
            parts: list[bytes] = []
            with self.open() as stream:
                try:
                    while sum(map(len, parts)) < HEAD_SIZE and (part := stream.read(4096)):
                        parts.append(part)
                except UserError:
                    if not parts:
                        raise
            self._head = b"".join(parts)[:HEAD_SIZE]
        return self._head

    def forget_head(self) -> None:
        """Let go of what `head` remembers: a run looks into all its files before it reads the first."""
        self._head = None

    def refuse_bomb(self) -> None:
        """Raise `UserError` for a packed source that unpacks to more than is allowed; costs one pass, no memory."""
        with self.stored() as raw:
            magic = raw.read(4)
        if magic[:2] != GZIP_MAGIC and magic != ZSTD_MAGIC:
            return
        with self.open() as stream:
            try:
                while stream.read(1 << 20):
                    pass
            except _TooLarge:
                raise
            except UserError:
                return

    def read(self) -> bytes:
        """Return all unpacked bytes; raise `UserError` above DOCUMENT_SIZE_MAX_BYTES."""
        with self.open() as stream:
            data = stream.read(DOCUMENT_SIZE_MAX_BYTES + 1)
        if len(data) > DOCUMENT_SIZE_MAX_BYTES:
            raise UserError(f"{self.name}: one document of more than {DOCUMENT_SIZE_MAX_BYTES} bytes; split it")
        return data

    def lines(self, problem: Callable[[str, str], None] | None = None) -> Iterator[Line]:
        """Yield the lines. Where the packing breaks off, report it through `problem` and end there."""
        number = end = 0
        with self.open() as stream:
            while True:
                try:
                    data = stream.readline(LINE_SIZE_MAX_BYTES)
                except UserError as error:
                    if problem is None or number == 0:
                        raise
                    problem(f"line {number + 1}", str(error))
                    return
                if not data:
                    return
                number += 1
                offset, end = end, end + len(data)
                if data.endswith(b"\n"):
                    yield Line(number, data[:-2] if data.endswith(b"\r\n") else data[:-1], True, offset)
                elif len(data) >= LINE_SIZE_MAX_BYTES:
                    raise UserError(f"{self.name}: line {number}: longer than {LINE_SIZE_MAX_BYTES} bytes; split it")
                else:
                    yield Line(number, data, False, offset)


class _TooLarge(UserError):
    """Unpacked data pass the limit."""


class _Bounded(io.RawIOBase):
    """A decompressing stream that stops a bomb and turns damage into one line."""

    def __init__(self, stream: IO[bytes], source: Source) -> None:
        self._stream = stream
        self._source = source
        self._given = 0
        size = source.size or 0
        self._allowed = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, OSError, gzip.BadGzipFile) as error:
            raise UserError(f"{self._source.name}: compressed data are damaged or cut short ({error})") from None
        except Exception as error:  # zstandard has its own error type, known only where it is installed
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            raise UserError(f"{self._source.name}: compressed data are damaged or cut short ({error})") from None
        self._given += len(data)
        if self._given > self._allowed:
            raise _TooLarge(
                f"{self._source.name}: unpacks to more than {self._allowed} bytes, refused as a possible bomb; "
                "unpack it yourself if it is meant"
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def find_sources(paths: Sequence[str], suffixes: Sequence[str] = ()) -> list[Source]:
    """Return the sources that `paths` name, sorted and without repeats, so that no order of arguments matters.

    A path is a file, a directory (searched below for names with one of `suffixes`), a glob, `-` (standard
    input) or a URL. Raises `UserError` for a path that names nothing and for a directory without sessions.
    """
    found: dict[str, Source] = {}
    endings = tuple(suffixes) or SESSION_SUFFIXES
    for path in paths:
        for source in _expand(path, endings):
            found.setdefault(source.path or source.name, source)
    return [found[key] for key in sorted(found)]


def _expand(path: str, endings: tuple[str, ...]) -> list[Source]:
    if path == "-":
        return [Source.of_bytes(sys.stdin.buffer.read(), "<stdin>")]
    if "://" in path:
        return _expand_url(path, endings)
    if os.path.isdir(path):
        names = list(_walk(path, endings))
        if not names:
            raise UserError(f"{path}: no session files below this directory (*{', *'.join(endings[:5])})")
        return [Source.of_path(name) for name in names]
    if os.path.exists(path):
        return [Source.of_path(path)]
    names = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
    if not names:
        raise UserError(f"{path}: no such file, directory or match")
    return [Source.of_path(name) for name in names]


def _walk(path: str, endings: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        # A root or a lake of ours below the directory holds no sources.
        folders[:] = [] if "root.json" in names or "_trajlake" in folders else sorted(folders)
        if "root.json" in names:
            continue
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.join(folder, name)


def _expand_url(url: str, endings: tuple[str, ...]) -> list[Source]:
    import fsspec

    try:
        filesystem, place = fsspec.core.url_to_fs(url)
        if any(sign in place for sign in "*?["):
            names = sorted(filesystem.glob(place))
        elif filesystem.isdir(place):
            names = sorted(name for name in filesystem.find(place) if name.endswith(endings))
        else:
            names = [place] if filesystem.exists(place) else []
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"{url}: cannot be listed ({error})", exit_code=EXIT_COULD_NOT_RUN) from None
    if not names:
        raise UserError(f"{url}: no session files there")

    def opener(name: str) -> Callable[[], IO[bytes]]:
        return lambda: cast("IO[bytes]", filesystem.open(name, "rb"))

    return [
        Source(filesystem.unstrip_protocol(name), opener(name), size=filesystem.size(name), path=name) for name in names
    ]


def _zstd_stream(raw: IO[bytes]) -> IO[bytes]:
    import zstandard

    return cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
