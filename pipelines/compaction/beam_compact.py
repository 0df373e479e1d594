"""The two stages of a run on a Beam runner. Wiring only: what the stages do stands in `explode` and `reduce`.

An element is the number of a segment; only `(bucket, path)` crosses the shuffle. The one file that imports Beam at
module level; import it through `compact(options.runner=…)`, never from a verb's module.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

# Importing Beam warns through the root logger, which installs a handler: the user's basicConfig() would do nothing.
_handlers, _disabled = list(logging.root.handlers), logging.root.manager.disable
logging.disable(logging.WARNING)
import apache_beam as beam  # noqa: E402  # what it does to the root logger is undone below
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

logging.disable(_disabled)
logging.root.handlers[:] = _handlers

from trajlake.pipelines.compaction.beam_workers import LOST, our_workers  # noqa: E402  # its handler replaces Beam's
from trajlake.pipelines.compaction.explode import explode  # noqa: E402
from trajlake.pipelines.compaction.reduce import reduce  # noqa: E402
from trajlake.pipelines.compaction.run_plan import Plan  # noqa: E402
from trajlake.pipelines.lakehouse.lake_errors import LakeError  # noqa: E402

_GAVE_UP: Final = re.compile(r"^Pipeline \S+ failed in state (\w+):\s*([^\n]*)")  # what a PortableRunner raises


def run_stages(plan: Plan, runner: str, options: Sequence[str] = ()) -> list[str]:
    """Run both stages on `runner` (named, never Beam's default) and return the paths of the bucket reports.

    Each reducer leaves its report at a path known beforehand, so that nothing has to come back through the runner.

    `options` are Beam's own flags. Staging must be a file system that every worker sees. Raises what the runner
    raises, `LakeError` where a worker process was killed or a cluster gave the job up; nothing is committed then.
    """
    with our_workers() as workers:
        try:
            _run(plan, [f"--runner={runner}", *options])
        except Exception as error:
            # What Beam makes of a dead worker depends on what it was waiting for: our answer, its data, its control.
            why = LOST if workers.lost.is_set() or LOST in str(error) else _gave_up(str(error))
            if why is None:
                raise
            raise LakeError(f"{plan.lake}: {why}; nothing was committed, run it again") from None
    return [f"{plan.staging}/bucket-{number}.json" for number in range(plan.buckets)]


def _gave_up(text: str) -> str | None:
    """Return one line for a job that its cluster ended; None for an error of another kind."""
    gave_up = _GAVE_UP.search(text)
    return gave_up and f"the runner ended the job as {gave_up[1]}: {' '.join(gave_up[2].split())}"


def _run(plan: Plan, flags: list[str]) -> None:
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        (
            pipeline
            | "segments" >> beam.Create(list(range(len(plan.segments))), reshuffle=True)
            | "explode" >> beam.FlatMap(_explode, plan.path).with_output_types(tuple[int, str])
            | "paths by bucket" >> beam.GroupByKey()
            | "reduce" >> beam.Map(_reduce, plan.path).with_output_types(str)
        )


def _explode(place: int, plan_path: str) -> list[tuple[int, str]]:
    return explode(plan_path, place)


def _reduce(group: tuple[int, Iterable[str]], plan_path: str) -> str:
    return reduce(plan_path, group[0], list(group[1]))
