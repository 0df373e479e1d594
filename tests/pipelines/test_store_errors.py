"""Which errors are the store's: those are one line and waited for; what a disk of this host says is left as it is."""

from __future__ import annotations

import errno

import pytest

from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeUnreachable
from trajlake.pipelines.lakehouse.object_places import store_errors, tried


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_what_a_disk_of_this_host_says_is_not_the_stores_and_is_not_waited_for(number: int) -> None:
    asked = 0

    def full() -> None:
        nonlocal asked
        asked += 1
        raise OSError(number, "of this disk", "/tmp/staging/x")

    with pytest.raises(OSError, match="of this disk"):
        tried(full, "s3://b/k")
    with pytest.raises(OSError, match="of this disk"), store_errors("s3://b/k"):
        full()
    assert asked == 2
    with pytest.raises(LakeError) as found, store_errors("s3://b/k"):
        raise ConnectionResetError(errno.ECONNRESET, "reset")
    assert isinstance(found.value, LakeUnreachable)
