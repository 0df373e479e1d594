"""The other side of the blob bench: read, sha256, zstd-3, write, on all cores. `LANDING OUT` -> seconds, blobs."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import zstandard

from trajlake.pipelines.lakehouse.table_files import threads


def convert(landing: Path, out: Path) -> int:
    """Write every landed blob as one zstd file; return how many."""

    def one(path: Path) -> None:
        data = path.read_bytes()
        name = sha256(data).hexdigest()
        (out / name).write_bytes(zstandard.ZstdCompressor(level=3).compress(data))

    out.mkdir(parents=True)
    paths = [path for path in landing.glob("blobs/*/*/*") if path.is_file()]
    with ThreadPoolExecutor(threads()) as pool:
        return len(list(pool.map(one, paths)))


if __name__ == "__main__":
    begun = time.perf_counter()
    count = convert(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{time.perf_counter() - begun:.3f} {count}\n")
