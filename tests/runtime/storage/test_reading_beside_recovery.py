"""A worker reads a dead writer's folder while another process recovers it: segments move under the reader's eyes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.events import event_of
from trajlake.runtime.env import Env
from trajlake.runtime.leases.lease import LeaseRecord, Tenure
from trajlake.runtime.root import Root
from trajlake.runtime.root_log import RootLog

DYING = """
import os, sys
from tests.support.events import event_of, info_of
from trajlake.runtime.root import Root
writer = Root.open(sys.argv[1]).claim_writer()
writer.append([event_of("t", number) for number in range(3)], info_of("t")).wait()
print(writer.writer_id, flush=True)
os._exit(0)
"""


class Moving(Env):
    """Recovers the writer just before the reader opens its segment for the second time: listed, not yet read."""

    def __init__(self, root: str, writer: str, *, looks: int) -> None:
        super().__init__()
        self._root, self._segment, self._looks = root, f"{writer}/{0:020d}.seg", looks

    def open(self, path: str, **how: bool) -> int:
        if path.endswith(self._segment):
            self._looks -= 1
            if self._looks == 0:
                Root.open(self._root).claim_writer().close()
                assert not Path(path).exists(), "recovery is to move every frame: nothing proves them durable"
        return super().open(path, **how)


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_what_recovery_moves_is_read_in_its_new_place(tmp_path: Path, project: Path, looks: int) -> None:
    """1 and 2: between listing and reading the events; 3 and 4: of those that a successor must copy."""
    root = str(tmp_path / "root")
    Root.open(root)
    died = subprocess.run([sys.executable, "-c", DYING, root], cwd=project, capture_output=True, text=True, check=True)
    writer = died.stdout.strip()
    record = LeaseRecord(
        tenant="default", trajectory_id="t", revision="1", tenures=(Tenure(token=1, writer=writer),), free_in_s=0,
        holder=None,
    )  # fmt: skip
    found = RootLog(Root.open(root, Moving(root, writer, looks=looks))).read("default", "t", record)
    hashes = [event_of("t", number).hash for number in range(3)]
    assert [event.hash for event in found.events] == hashes
    assert {event.hash for event in found.undurable} <= set(hashes), "sealed by now, or still to be copied"
