"""A process that kills itself (SIGKILL) at one call of the disk: before it, or in the middle of a write.

Each is a real process on a real disk; what it leaves is what the kernel had of it. `FaultyEnv` shows what a power loss
leaves; this shows that no step relies on a later one of the same process.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from trajlake.runtime.env import Env

CALLS = (
    "pwrite", "pwrite_durably", "fdatasync", "truncate", "rename", "link", "unlink", "mkdir", "rmdir", "touch",
    "fsync_dir",
)  # fmt: skip
WRITES = ("pwrite", "pwrite_durably")


class KillingEnv(Env):
    """The real machine up to call number `at` (from 1) of those in `CALLS`; there the process dies.

    `half`: if that call is a write, half of its bytes are written first. `at` 0 never dies; `calls` counts. Any code
    may name a failpoint of its own by calling `point`.
    """

    def __init__(self, at: int, *, half: bool = False, one_call_barrier: bool = True) -> None:
        super().__init__(one_call_barrier=one_call_barrier)
        self.at, self.half = at, half
        self.calls = 0
        self.trace: list[str] = []

    def point(self, name: str, half: Callable[[], None] | None = None) -> None:
        """Count a failpoint, and die if it is the one."""
        self.calls += 1
        self.trace.append(name)
        if self.calls == self.at:
            if half is not None and self.half:
                half()
            os.kill(os.getpid(), signal.SIGKILL)


def _killing(name: str) -> Any:
    real = getattr(Env, name)

    def call(self: KillingEnv, *arguments: Any) -> Any:
        def half() -> None:
            fd, data, offset = arguments
            os.pwrite(fd, data[: len(data) // 2], offset)

        self.point(name, half if name in WRITES else None)
        return real(self, *arguments)

    return call


for _name in CALLS:
    setattr(KillingEnv, _name, _killing(_name))


def dies_at(at: int, work: Callable[[KillingEnv], None], *, half: bool = False, one_call_barrier: bool = True) -> bool:
    """Run `work` in a child process that dies at call `at`. True if it did, False if the work was done before."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            work(KillingEnv(at, half=half, one_call_barrier=one_call_barrier))
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0, "the work failed before it was killed: see its trace above"
    return False
