"""An agent pays for the runtime at start: `import trajlake.runtime` costs at most 1.6x `import msgspec, asyncio`."""

from __future__ import annotations

import statistics
import subprocess
import sys

COST_RATIO_MAX = 1.6
ROUNDS = 15
CLOCK = "import time; a = time.perf_counter_ns(); import {}; print(time.perf_counter_ns() - a)"


def import_ns(modules: str) -> int:
    done = subprocess.run([sys.executable, "-c", CLOCK.format(modules)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_importing_the_runtime_costs_at_most_1_6_times_msgspec_and_asyncio() -> None:
    ours, bar = [], []
    for _ in range(ROUNDS):  # interleaved, so that a busy machine slows both sides alike
        bar.append(import_ns("msgspec, asyncio"))
        ours.append(import_ns("trajlake.runtime"))
    ratio = statistics.median(ours) / statistics.median(bar)
    assert ratio <= COST_RATIO_MAX, f"{ratio:.2f}x (bar {statistics.median(bar) / 1e6:.1f} ms)"


def test_importing_the_runtime_brings_in_no_package_but_msgspec() -> None:
    code = (
        "import sys; before = set(sys.modules); import trajlake.runtime; "
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {module for module in done.stdout.split() if not module.startswith("_")} <= {"trajlake", "msgspec"}


def test_the_logger_has_a_null_handler_and_no_other() -> None:
    code = (
        "import logging, trajlake.runtime; print([type(h).__name__ for h in logging.getLogger('trajlake').handlers], "
        "logging.getLogger().handlers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['NullHandler'] []"
