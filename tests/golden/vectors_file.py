"""Opens the golden vectors: fixed inputs with the bytes that every version of the format makes of them.

They were computed without this package: sha256 over text put together by hand, canonical JSON and numbers by a
JavaScript engine. A change that breaks one changes the format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parent / "vectors"


def vectors(name: str) -> Any:
    """Return the decoded `vectors/<name>.json`."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
