"""The hash chain of one segment, checked in place: no event is built, so it costs little more than the hashing.

`schemas.chain` is the law and has the same answers for whole trajectories; here only what stands next to each other in
one segment can be checked: an event whose predecessor is elsewhere, or was written under another token, is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from trajlake.schemas.chain import genesis
from trajlake.schemas.events import NAME_OF_CODE

from .frame import HEADER_SIZE
from .segment_scan import SegmentScan

_FIELDS: Final = struct.Struct("<4xI20xHH16xqqqi4x16s32s")
"""Payload length, type code, schema version, sequence number, token, recorded at, turn, salt, hash."""


def chain_breaks(scan: SegmentScan) -> Iterator[int]:
    """Yield the lsn of each event whose hash does not follow from its fields, its text and the event before it."""
    unpack, names, hashed = _FIELDS.unpack_from, NAME_OF_CODE, sha256
    infos = list(scan.infos.values())
    owners = [f"\n{info.tenant}\n{info.trajectory_id}\n" for info in infos]
    heads = [genesis(info.tenant, info.trajectory_id).hex() for info in infos]
    following = [0] * len(infos)
    tokens = [-1] * len(infos)
    data = scan.data
    for index, (at, owner) in enumerate(zip(scan.offsets, scan.ordinals, strict=True)):
        length, code, version, number, token, recorded_at, turn, salt, found = unpack(data, at)
        known = number == following[owner] and (token == tokens[owner] or number == 0)
        following[owner], tokens[owner] = number + 1, token
        start = at + HEADER_SIZE
        head, heads[owner] = heads[owner], found.hex()
        if not known or code not in names:
            continue
        bound = hashed(b"".join((salt.hex().encode(), b"\n", data[start : start + length]))).hexdigest()
        text = f"{head}{owners[owner]}{number}\n{names[code]}\n{version}\n{token}\n{turn}\n{recorded_at}\n{bound}"
        if hashed(text.encode()).hexdigest() != heads[owner]:
            yield scan.first_lsn + index
