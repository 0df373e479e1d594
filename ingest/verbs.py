"""The verbs that `ingest` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "export": ("trajlake.ingest.commands.export:export", "write trajectories in another tool's format"),
    "import": ("trajlake.ingest.commands.import_:import_", "import recorded sessions of other tools"),
    "annotate": ("trajlake.ingest.commands.rewards:annotate", "judge trajectories: a reward, or a label"),
    "ship": ("trajlake.ingest.commands.ship:ship", "copy sealed segments, blobs and import reports to a landing"),
}
