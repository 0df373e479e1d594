"""What `lost_seal` says of every segment of a writer."""

from __future__ import annotations

from trajlake.runtime.env import Env
from trajlake.runtime.wal.lost_seal import lost_seal
from trajlake.runtime.wal.reader import list_segments, read_segment


def lost_seals(env: Env, folder: str) -> list[str]:
    """The proofs found, none for a healthy or merely crashed writer."""
    segments = list_segments(env, folder)
    said = [lost_seal(segments, place, read_segment(env, one.path).end) for place, one in enumerate(segments)]
    return [one for one in said if one]
