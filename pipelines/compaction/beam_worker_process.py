"""What a worker process of FnApiRunner runs for a pipeline of this package: Beam's own harness, loaded and left faster.

Beam loads pandas wherever it is installed, for kinds of elements that no stage here has: a quarter of the time until
a worker can begin. It is hidden while Beam is loaded; what a stage imports after that is there.
Once Beam's harness has ended and its log is flushed, nothing is left that a tidy end of the interpreter would save,
and it takes half a second for a worker that has held a bucket; the launcher waits for each worker in turn.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

NOT_NEEDED: Final = ("pandas",)


def load_beam() -> None:
    """Import Beam's worker without what it takes along only because it is installed."""
    hidden = [name for name in NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: "not to be found"
    try:
        import apache_beam.runners.worker.sdk_worker_main  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


def main() -> None:
    """Serve until the launcher has no more work, and end."""
    load_beam()
    from apache_beam.runners.worker import sdk_worker_main

    code = 0
    try:
        sdk_worker_main.main(sys.argv)
    except BaseException:  # noqa: BLE001  # whatever it is, the launcher is told by the exit code
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
