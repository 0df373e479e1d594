"""Constants of the format: a change of one changes hashes on disk, so it must be made twice."""

from __future__ import annotations

from trajlake.schemas import limits


def test_the_constants_of_the_format_are_as_the_format_page_says() -> None:
    assert limits.INLINE_MAX == 32_768
    assert limits.FRAME_MAX == 1_048_576
    assert limits.BLOB_HEAD_CHARS == 200
    assert limits.VALUE_DEPTH_MAX == 200
    assert limits.SAFE_INTEGER_MAX == 9_007_199_254_740_991
    assert (limits.SALT_SIZE, limits.HASH_SIZE, limits.KEY_SIZE) == (16, 32, 16)
    assert (limits.TENANT_MAX, limits.TRAJECTORY_ID_MAX) == (64, 256)


def test_one_inline_value_of_the_largest_size_fits_a_frame_many_times() -> None:
    assert limits.INLINE_MAX * 16 < limits.FRAME_MAX
