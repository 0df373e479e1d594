"""`python -m trajlake.runtime` is the command `trajlake` for an environment whose scripts are not on the path."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # a process that this one spawns imports this file again, and needs no command line
    from trajlake.runtime.cli import main

    sys.exit(main())
