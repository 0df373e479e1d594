"""A corpus of Claude Code sessions: real files copied under new session and message ids until it is large enough."""

from __future__ import annotations

import re
from pathlib import Path

_IDS = re.compile(rb'"(sessionId|uuid|parentUuid|id|tool_use_id|requestId|logicalParentUuid)":"([^"]+)"')


def write_corpus(source: Path, target: Path, size_bytes: int) -> int:
    """Write copies of `source`'s recorded sessions to `target/projects/bench`; return the bytes written."""
    folder = target / "projects" / "bench"
    folder.mkdir(parents=True)
    originals = [path.read_bytes() for path in sorted(source.glob("hive__*.jsonl"))]
    assert originals, f"no recorded sessions in {source}"
    written = copy = 0
    while written < size_bytes:
        for number, text in enumerate(originals):
            mark = b"-%d-%d" % (copy, number)
            renamed = _IDS.sub(lambda match, mark=mark: b'"' + match[1] + b'":"' + match[2] + mark + b'"', text)
            name = f"{copy:08x}-{number:04x}-4000-8000-{copy:012x}.jsonl"
            (folder / name).write_bytes(renamed)
            written += len(renamed)
        copy += 1
    return written
