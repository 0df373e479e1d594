"""Worker processes of FnApiRunner: when one is killed, the run ends.

Beam itself (2.77) raises in the thread that started the process, and waits for the answers of the dead for ever.
"""

from __future__ import annotations

import threading
from typing import Final

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


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class WatchedWorker(SubprocessSdkWorkerHandler):
    """Beam's own handler, which answers for a process that cannot: with the error `LOST`."""

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
            while not self._closed.wait(LOOK_AGAIN_S):
                for name, asked in list(self.control_conn._futures_by_id.items()):
                    asked.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=LOST))
