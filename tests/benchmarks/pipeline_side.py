"""Our side of the pipeline bench, in a process of its own: `python -m tests.benchmarks.pipeline_side LANDING LAKE …`.

Prints the seconds from landing to the durable snapshot, and the rows. Flags: `derive`, the name of a Beam runner, and
its options (`--…`).
"""

from __future__ import annotations

import sys
import time

from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.run_report import CompactOptions


def main(landing: str, lake: str, *flags: str) -> None:
    options = tuple(flag for flag in flags if flag.startswith("--"))
    runner = next((flag for flag in flags if flag != "derive" and flag not in options), None)
    if runner is not None:
        import trajlake.pipelines.compaction.beam_compact  # noqa: F401  # importing Beam is no part of the work
    begun = time.perf_counter()
    report = compact(landing, lake, CompactOptions(derive="derive" in flags, runner=runner, beam_options=options))
    sys.stdout.write(f"{time.perf_counter() - begun:.3f} {report.events_added}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
