"""A replay suite on a Beam runner. Wiring only: one element is one trajectory's id, what is done with it is
`runtime.replaying.many.check`.

The agent's module and the source must be there for every worker. Imports Beam at module level: load it through
`trajlake replay --runner NAME`, never from a verb's module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trajlake.pipelines.compaction import beam_compact
from trajlake.runtime.replaying.many import Suite, check

beam: Any = vars(beam_compact)["beam"]
PipelineOptions: Any = vars(beam_compact)["PipelineOptions"]
"""Through the module that imports Beam without letting it take over the root logger."""


def run_suite(
    suite: Suite, ids: Sequence[str], out: str, runner: str, options: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Replay every id on `runner`; write reports as JSON lines under `out` (a prefix every worker sees), yield them."""
    flags = [f"--runner={runner}", *options]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        (
            pipeline
            | "trajectories" >> beam.Create(list(ids), reshuffle=True)
            | "replay" >> beam.Map(_report, msgspec.json.encode(suite)).with_output_types(str)
            | "reports" >> beam.io.WriteToText(out, file_name_suffix=".jsonl")
        )
    folder, _, prefix = out.rpartition("/")
    for path in sorted(Path(folder or ".").glob(f"{prefix}*.jsonl")):
        for line in path.read_text().splitlines():
            yield msgspec.json.decode(line)


def _report(trajectory_id: str, suite: bytes) -> str:
    return msgspec.json.encode(check(msgspec.json.decode(suite, type=Suite), trajectory_id).as_json()).decode()
