"""Errors of the journal, chosen by what the caller must do next.

JournalError
├── EventRefused       fix the event: nothing was queued
├── RootError          fix the path: there is no usable root
├── WriterLocked       let the other process be, or claim another writer
├── JournalFull        free disk space and try again: nothing was queued
├── JournalClosed      open the journal in this process; it was closed, or inherited by fork
├── OutcomeUnknown     stop waiting, do not dispatch: the event may be, or become, durable
│   └── JournalFailed  the same for good: this writer is read-only; a new process recovers it
├── SegmentCorrupt     stop and report: damage that no crash explains
└── BlobMissing        bring the blob back from landing or replica: absent here, or its bytes are wrong
"""

from __future__ import annotations

from typing import Final

ADVICE: Final = "; run 'trajlake journal verify'"
"""What the text of damage ends with."""


class JournalError(Exception):
    """Root of the journal's errors; its text is one line fit for a user. `exit_code`: what a command ends with."""

    exit_code = 2


class EventRefused(JournalError, ValueError):
    """An event that no frame can hold (erased, too large, a wrong field). Nothing of its append was queued."""


class RootError(JournalError):
    """The path is no root, or one of a newer format, or cannot be created."""


class WriterLocked(JournalError):
    """A live process holds this writer directory."""


class JournalFull(JournalError):
    """The disk has no room for another segment. Raised before anything is queued: free space, then retry."""

    exit_code = 3


class JournalClosed(JournalError):
    """The writer was closed, or belongs to the parent of a fork."""


class OutcomeUnknown(JournalError):
    """A wait ended without an answer. The events may be durable, or become so: never treat this as "not written"."""

    exit_code = 3


class JournalFailed(OutcomeUnknown):
    """Disk errors ended this writer. What was acknowledged is safe; the outcome of all else is unknown."""


class SegmentCorrupt(JournalError):
    """Damage that a crash cannot explain: acknowledged frames are unreadable, or a segment is missing.

    Attributes: path, offset (bytes), lsn (the first one that cannot be read).
    """

    def __init__(self, message: str, *, path: str = "", offset: int = 0, lsn: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.lsn = lsn


class BlobMissing(JournalError):
    """A blob is absent, or the bytes under its name do not have its hash."""


def without_advice(text: str) -> str:
    """Return an error's text without the advice at its end, for whoever gives better one."""
    return text.removesuffix(ADVICE)


def again(error: JournalError) -> JournalError:
    """Return a fresh copy of an error that many callers are told of: each traceback shows one caller only."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
