"""Writes Inspect logs for tests: the same run as a `.json` log, and as `.eval` with whole or chunked samples."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import zstandard

Members = list[tuple[str, bytes]]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def whole(log: dict[str, Any], *, finished: bool = True) -> Members:
    """The members of an archive with one entry for each sample."""
    header = {key: value for key, value in log.items() if key not in ("samples", "reductions")}
    members = [("_journal/start.json", compact({key: log[key] for key in ("version", "eval", "plan")}))]
    for sample in log["samples"]:
        members.append((f"samples/{sample['id']}_epoch_{sample['epoch']}.json", compact(sample)))
    if finished:
        members.append(("summaries.json", b"[]"))
        members.append(("reductions.json", compact(log.get("reductions"))))
        members.append(("header.json", compact(header)))
    return members


def chunked(log: dict[str, Any], size: int = 3) -> Members:
    """The members of an archive whose samples are cut into sequences of `size` items."""
    members = [one for one in whole(log) if not one[0].startswith("samples/")]
    for sample in log["samples"]:
        members += _chunked_sample(sample, size)
    return members


def _chunked_sample(sample: dict[str, Any], size: int) -> Members:
    prefix = f"samples/{sample['id']}_epoch_{sample['epoch']}"
    bulk = ("messages", "events", "attachments", "events_data", "metadata", "message_pool")
    attached = sample.get("attachments", {})
    places = {name: number for number, name in enumerate(attached)}
    pool = list((sample.get("events_data") or {}).get("messages", sample.get("message_pool", [])))
    refs = []
    for message in sample["messages"]:
        if message not in pool:
            pool.append(message)
        refs.append([pool.index(message), pool.index(message) + 1])

    def renumbered(value: Any) -> bytes:
        def place(match: re.Match[bytes]) -> bytes:
            number = places.get(match[1].decode())
            return match[0] if number is None else b"attachment://%d" % number

        return re.sub(rb"attachment://([0-9a-f]{32})", place, compact(value))

    shell = {key: value for key, value in sample.items() if key not in bulk}
    members = [(f"{prefix}/sample.json", renumbered({**shell, "message_refs": refs}))]
    if sample.get("metadata"):
        members.append((f"{prefix}/metadata.json", renumbered(sample["metadata"])))
    members += [(f"{prefix}/skeleton.json", b"{}"), (f"{prefix}/events/stats.json", b"{}")]
    for name, items in (("messages", pool), ("events", sample["events"])):
        members += [
            (f"{prefix}/{name}/{at}.json", renumbered(items[at : at + size])) for at in range(0, len(items), size)
        ]
    values = list(attached.values())
    members += [
        (f"{prefix}/attachments/{at}.json", compact(values[at : at + size])) for at in range(0, len(values), size)
    ]
    return members


def deflated(members: Iterable[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def zstd(members: Iterable[tuple[str, bytes]]) -> bytes:
    """An archive of method 93, which the standard library of Python below 3.14 cannot write."""
    out, directory, count = bytearray(), bytearray(), 0
    for name, data in members:
        packed, stated = zstandard.ZstdCompressor().compress(data), name.encode()
        fields = (20, 0, 93, 0, 0, zlib.crc32(data), len(packed), len(data), len(stated), 0)
        directory += struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, *fields[:5], *fields[5:8], len(stated), 0, 0, 0, 0, 0, len(out)
        )
        directory += stated
        out += struct.pack("<4s5H3I2H", b"PK\3\4", *fields) + stated + packed
        count += 1
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), len(out), 0)
    return bytes(out + directory + end)
