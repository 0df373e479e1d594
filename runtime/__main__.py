"""`python -m trajlake.runtime` is the command `trajlake` for an environment whose scripts are not on the path."""

from __future__ import annotations

import sys

from trajlake.runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
