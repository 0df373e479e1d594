"""Makes the golden segments of format 1: `python -m tests.golden.segment_files` writes them beside this file.

Three chained events (those of vectors/chain.json) in two barriers, on a machine whose clock and randomness are
fixed. Until the first release they may be made anew; from then on old ones stay and must still be read.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.bare_writer import FOLDER, WRITER_ID
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import make_folder
from trajlake.runtime.wal.frame import TrajectoryInfo, prepare
from trajlake.runtime.wal.segment import Group, segment_path
from trajlake.runtime.wal.segment_chain import SegmentChain
from trajlake.runtime.wal.segment_scan import scan_segment
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event

FOLDER_OF_FILES = Path(__file__).parent / "segments"
INFO = TrajectoryInfo(
    tenant="default", trajectory_id="run-1", model="scripted", model_version="1", started_on="2025-11-30"
)


def chained_events() -> list[Event]:
    """The three events of the chain's golden vectors."""
    vectors = json.loads((Path(__file__).parent / "vectors" / "chain.json").read_text())
    return [
        Event(
            tenant=vectors["tenant"],
            trajectory_id=vectors["trajectory_id"],
            sequence_number=event["sequence_number"],
            fencing_token=event["fencing_token"],
            turn=event["turn"],
            type=event["type"],
            recorded_at=event["recorded_at"],
            payload=event["payload"].encode(),
            salt=bytes.fromhex(event["salt"]),
            hash=bytes.fromhex(event["hash"]),
        )
        for event in vectors["events"]
    ]


def golden_segments() -> dict[str, bytes]:
    """The bytes of every golden segment by file name."""
    env = FaultyEnv(1)
    make_folder(env, FOLDER)
    chain = SegmentChain(
        env, FOLDER, WRITER_ID, next_number=0, next_lsn=0, previous_seal=bytes(32), threaded=False,
        options=WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=8192),
    )  # fmt: skip
    first, second, third = (prepare(event, INFO) for event in chained_events())
    chain.write_batch([Group([first, second], INFO)])
    chain.write_batch([Group([third], INFO)])
    path = segment_path(FOLDER, 0)
    still_open = bytes(env.file(path).data)
    chain.close()
    offsets = scan_segment(still_open).offsets
    return {
        "sealed.seg": bytes(env.file(path).data),
        "open.seg": still_open,
        "torn.seg": damaged(still_open, offsets[2] + 140),
        "corrupt.seg": damaged(still_open, offsets[1] + 140),
    }


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


def main() -> None:
    FOLDER_OF_FILES.mkdir(exist_ok=True)
    for name, data in golden_segments().items():
        (FOLDER_OF_FILES / name).write_bytes(data)


if __name__ == "__main__":
    main()
