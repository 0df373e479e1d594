"""Extraction's tasks on a Beam runner. Wiring only: what a task does stands in `curate.worker`.

An element is the number of a task; nothing else crosses between workers. Import it inside a function.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

_handlers = list(logging.root.handlers)
import apache_beam as beam  # noqa: E402  # the handlers above are restored below
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

# Importing Beam installs a root log handler, after which the user's own basicConfig() would do nothing.
logging.root.handlers[:] = _handlers

from trajlake.pipelines.curate.worker import run_task  # noqa: E402


def run_tasks(plan_path: str, count: int, runner: str, options: Sequence[str] = ()) -> None:
    """Run every task of the plan on `runner` (named, never Beam's default); raise what the runner raises."""
    flags = [f"--runner={runner}", *options]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        (
            pipeline
            | "tasks" >> beam.Create(list(range(count)), reshuffle=True)
            | "extract" >> beam.Map(_run, plan_path).with_output_types(str)
        )


def _run(number: int, plan_path: str) -> str:
    return run_task(plan_path, number)
