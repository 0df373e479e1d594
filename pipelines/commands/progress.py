"""Progress of long verbs on a terminal: one line that is overwritten; nothing where stderr is a file."""

from __future__ import annotations

import re
import sys
from typing import Final

from trajlake.runtime.cli_errors import UserError

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Bar:
    """Told (step, done, total) as `compact` and the other runs tell it; `clear` ends it."""

    def __call__(self, step: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            count = f" {done}/{total}" if total else ""
            sys.stderr.write(f"\r\x1b[K{step}{count}")
            sys.stderr.flush()

    def clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def seconds_of(text: str, option: str) -> float:
    """Return the seconds in a text such as 7d or 12h; raise `UserError` naming the option for any other."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise UserError(f"{option} {ascii(text)}: give a number and s, m, h or d, such as 7d")
    return float(match[1]) * _UNIT_S[match[2]]
