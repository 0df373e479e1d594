"""Zero-filled files made ahead of use: the helper rests between pieces only while it is ahead of the writer."""

from __future__ import annotations

import threading

import pytest

from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.wal import spare
from trajlake.runtime.wal.segment import ZEROS

PIECES = 8


class CountedRests(threading.Condition):
    """A condition that tells how often somebody waited on it for a time: that is a rest, and here a short one."""

    rests = 0

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            CountedRests.rests += 1
            timeout = 0.0
        return super().wait(timeout)


@pytest.mark.parametrize(("used_share", "rests"), [(0.0, PIECES - 1), (0.4, PIECES // 2), (1.0, 0)])
def test_a_spare_that_would_come_too_late_is_made_without_rests(monkeypatch, used_share: float, rests: int) -> None:
    monkeypatch.setattr(spare.threading, "Condition", CountedRests)
    CountedRests.rests = 0
    env = FaultyEnv()
    env.mkdir("/writer")
    keeper = spare.SpareKeeper(env, "/writer", threaded=True)
    keeper.used_share = used_share
    size = PIECES * len(ZEROS)
    keeper.want(size)
    with keeper._lock:
        while keeper._ready is None:
            keeper._lock.wait()
    assert CountedRests.rests == rests
    assert env.stat(keeper.take(size)).size_bytes == size
    keeper.close()
