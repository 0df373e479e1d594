"""Golden segments: format 1 is read and written byte for byte as FORMAT.md shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.segment_files import FOLDER_OF_FILES, INFO, chained_events, golden_segments
from tests.support.bare_writer import plain
from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.segment_scan import scan_segment
from trajlake.schemas.chain import genesis, verify

FORMAT = Path(__file__).parents[2] / "runtime" / "FORMAT.md"
NAMES = ["sealed.seg", "open.seg", "torn.seg", "corrupt.seg"]


def golden(name: str) -> bytes:
    return (FOLDER_OF_FILES / name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_todays_writer_writes_the_golden_bytes(name: str) -> None:
    assert golden_segments()[name] == golden(name)


@pytest.mark.parametrize(
    ("name", "end", "events"), [("sealed.seg", "sealed", 3), ("open.seg", "open", 3), ("torn.seg", "torn", 2),
                                ("corrupt.seg", "corrupt", 1)],
)  # fmt: skip
def test_a_golden_segment_reads_as_it_always_did(name: str, end: str, events: int) -> None:
    scan = scan_segment(golden(name))
    assert scan.end == end
    assert plain(list(scan.events())) == plain(chained_events()[:events])
    assert scan.infos == {INFO.key: INFO}


def test_the_chain_of_the_golden_events_holds_after_reading() -> None:
    events = list(scan_segment(golden("sealed.seg")).events())
    assert list(verify(events, prev=genesis("default", "run-1"))) == []


def test_the_golden_columns_are_those_of_the_events() -> None:
    columns = scan_columns(golden("sealed.seg"))
    assert (columns.first_lsn, columns.last_lsn, columns.data_size) == (0, 2, 4992)
    assert list(columns.offsets) == [4336, 4536, 4808]
    assert list(columns.ordinals) == [0, 0, 0]
    assert columns.trajectories == [INFO]


def test_every_byte_of_the_worked_example_is_a_byte_of_the_golden_segment() -> None:
    data = golden("sealed.seg")
    lines = re.findall(r"^ +(\d+)  ((?:[0-9a-f]{2} )+[0-9a-f]{2})(?:   .*)?$", FORMAT.read_text(), re.MULTILINE)
    assert len(lines) > 30
    for offset, shown in lines:
        expected = bytes.fromhex(shown)
        assert data[int(offset) : int(offset) + len(expected)] == expected, f"line {offset} of the worked example"


@pytest.mark.parametrize("major", [2, 7, 255])
def test_a_segment_of_a_newer_format_is_refused_by_name(major: int) -> None:
    data = bytearray(golden("sealed.seg"))
    data[7] = major
    with pytest.raises(SegmentCorrupt, match=f"segment format {major}, this trajlake reads 1"):
        scan_segment(bytes(data))


def test_what_is_no_segment_at_all_is_told_so() -> None:
    with pytest.raises(SegmentCorrupt, match="no segment"):
        scan_segment(b"{}" * 5000)
