"""The verbs that `pipelines` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "compact": ("trajlake.pipelines.cli_compact:compact", "take landed segments into a lake"),
    "demo": ("trajlake.pipelines.cli_demo:demo", "the main job, told step by step: killed, settled, shipped, queried"),
    "sql": ("trajlake.pipelines.cli_sql:sql", "ask a lake in SQL, once, from a file, or in a shell"),
    "verify": ("trajlake.pipelines.cli_verify:verify", "check the hash chain of a lake"),
}
