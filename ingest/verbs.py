"""The verbs that `ingest` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "import": ("trajlake.ingest.cli_import:import_", "import recorded sessions of other tools"),
    "ship": ("trajlake.ingest.cli_ship:ship", "copy sealed segments, blobs and import reports to a landing"),
}
