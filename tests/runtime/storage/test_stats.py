"""What a writer says about itself: five stages, and an OpenMetrics text with stable names."""

from __future__ import annotations

import re

from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.root import Root
from trajlake.runtime.wal.stats import Histogram


def test_every_batch_is_one_sample_of_each_stage() -> None:
    with Root.open("/journal", FaultyEnv()).claim_writer() as writer:
        for number in range(20):
            writer.append([event_of("t", number)], info_of("t")).wait()
    stats = writer.stats()
    assert list(stats.measured.stages) == ["queue", "batch", "write", "barrier", "wake"]
    assert {histogram.count for histogram in stats.measured.stages.values()} == {20}
    assert stats.measured.events_per_batch.sum == 20
    assert (stats.durable_lsn, stats.segments_begun, stats.failed_over) == (19, 1, False)
    assert all(histogram.sum >= 0 for histogram in stats.measured.stages.values())


def test_the_openmetrics_text_keeps_its_names_and_its_buckets_only_grow() -> None:
    with Root.open("/journal", FaultyEnv()).claim_writer() as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
    text = writer.stats().lines()
    assert text.endswith("# EOF\n")
    names = dict.fromkeys(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert list(names) == [
        "trajlake_journal_durable_lsn", "trajlake_journal_failed_over", "trajlake_journal_space_low",
        "trajlake_journal_written_bytes", "trajlake_journal_segments", "trajlake_journal_queue_full",
        "trajlake_journal_batch_events", "trajlake_journal_stage_seconds",
    ]  # fmt: skip
    counts = [int(n) for n in re.findall(r'stage="barrier",le="[^"]+"} (\d+)', text)]
    assert counts == sorted(counts)
    assert counts[-1] == 1
    assert f'trajlake_journal_durable_lsn{{writer="{writer.writer_id}"}} 0' in text


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) == 0.0
    for value in (0.5, 1.5, 1.6, 3.0):
        histogram.add(value)
    assert [histogram.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.0, 4.0]
    histogram.add(9.0)
    assert histogram.quantile(1.0) == float("inf")
