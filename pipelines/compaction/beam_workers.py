"""Worker processes of FnApiRunner: begun and ended quickly for our own stages, and when one is killed, the run ends.

Beam itself (2.77) raises in the thread that started the process, and waits for the answers of the dead for ever.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)

LOST: Final = "a worker process of this run is no more"
LOOK_AGAIN_S: Final = 0.1
BEAMS_OWN: Final = f"{sys.executable} -m apache_beam.runners.worker.sdk_worker_main".encode()
OURS: Final = f"{sys.executable} -m trajlake.pipelines.compaction.beam_worker_process".encode()


class Workers:
    """Those of one run of our own stages. `lost` is set once one of them is no more before its end."""

    def __init__(self) -> None:
        self.lost = threading.Event()


_ours: ContextVar[Workers | None] = ContextVar("trajlake_workers", default=None)


@contextmanager
def our_workers() -> Iterator[Workers]:
    """Within this, worker processes run `beam_worker_process`; another's pipeline in this process keeps Beam's own."""
    workers = Workers()
    token = _ours.set(workers)
    try:
        yield workers
    finally:
        _ours.reset(token)


def command_of(asked: bytes) -> bytes:
    """Return what a worker process is to run where Beam asks for `asked`."""
    return OURS if asked == BEAMS_OWN and _ours.get() is not None else asked


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class WatchedWorker(SubprocessSdkWorkerHandler):
    """Beam's own handler, which answers for a process that cannot: with the error `LOST`."""

    def __init__(self, worker_command_line: bytes, *more: Any) -> None:
        super().__init__(command_of(worker_command_line), *more)
        self._workers = _ours.get() or Workers()

    def start_worker(self) -> None:
        self._closed = threading.Event()
        self.worker = local_job_service.SubprocessSdkWorker(
            self._worker_command_line, self.control_address, self.provision_info, self.worker_id
        )
        self.worker_thread = threading.Thread(name="trajlake-worker", target=self._run)
        self.worker_thread.start()

    def close(self) -> None:
        self._closed.set()
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)  # for a process that connects only after this
        super().close()

    def _run(self) -> None:
        try:
            self.worker.run()
        except RuntimeError:  # says that the process ended, and with what code
            if not self._closed.is_set():
                self._workers.lost.set()
            while not self._closed.wait(LOOK_AGAIN_S):
                for name, asked in list(self.control_conn._futures_by_id.items()):
                    asked.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=LOST))
