"""Errors of the lake, chosen by what the caller must do next.

LakeError (exit code 3)
├── LakeMissing       no lake there: name the right path, or compact or import into it first      (exit code 2)
├── LakeDamaged       stop: something that a snapshot names is missing or cannot be read
├── LakeNewer         stop: written by a newer trajlake; upgrade to read it                        (exit code 2)
├── LakeUnreachable   the object store does not answer, or refuses: mend that and run again
├── RunLost           another launcher's run took this number: run again on what it left
└── BlobDamaged       bytes of the content store do not have the hash they are named by
"""

from __future__ import annotations


class LakeError(Exception):
    """Root of the lake's errors; its text is one line that says what, where and what next."""

    exit_code = 3


class LakeMissing(LakeError):
    exit_code = 2


class LakeDamaged(LakeError):
    pass


class LakeNewer(LakeError):
    exit_code = 2


class LakeUnreachable(LakeError):
    pass


class RunLost(LakeError):
    """`winner` is the name of the run that has the number."""

    def __init__(self, message: str, winner: str) -> None:
        super().__init__(message)
        self.winner = winner


class BlobDamaged(LakeError):
    exit_code = 1
