"""Constants of the format. They change hashes or bytes on disk, so none of them is ever a setting."""

from __future__ import annotations

from typing import Final

INLINE_MAX: Final = 32_768
"""Largest canonical JSON text (bytes) of one value that stays in an event; a larger one becomes a blob."""

FRAME_MAX: Final = 1_048_576
"""Largest payload (bytes) of one frame, after bulk has become blobs."""

BLOB_HEAD_CHARS: Final = 200
"""Characters of a text that stay in the event as `head` of its blob reference."""

VALUE_DEPTH_MAX: Final = 200
"""Deepest nesting of a value that the codec accepts."""

TENANT_MAX: Final = 64
TRAJECTORY_ID_MAX: Final = 256
"""Bytes of UTF-8."""

SALT_SIZE: Final = 16
HASH_SIZE: Final = 32
KEY_SIZE: Final = 16
"""Bytes of a trajectory key."""

INT64_MAX: Final = 2**63 - 1
SAFE_INTEGER_MAX: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (RFC 7493)."""
