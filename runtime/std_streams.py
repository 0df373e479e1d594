"""Standard streams as a shell hands them over: closed, full, or of an encoding that lacks what we print."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import Final

ESCAPED: Final = "trajlake-escaped"


def make_ready() -> None:
    """Fill the standard descriptors that are closed, and let no character fail that stdout or stderr cannot encode.

    A closed one would be the number of the next file that is opened, and whatever prints there would write into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False, encoding="utf-8"))
    codecs.register_error(ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)


def complain(line: str) -> None:
    """Print a line on stderr; where nobody can read it, the exit code still tells."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Encode error handler: characters as \\uXXXX, a pair beyond the first plane, which JSON reads back."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end
