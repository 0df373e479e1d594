"""The verbs that `pipelines` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "compact": ("trajlake.pipelines.cli_compact:compact", "take landed segments into a lake"),
    "maintain": ("trajlake.pipelines.cli_maintain:maintain", "merge small files, expire snapshots, vacuum"),
    "hold": ("", "forbid deletion, and lift that again"),
    "hold place": ("trajlake.pipelines.cli_hold:place", "place a hold"),
    "hold lift": ("trajlake.pipelines.cli_hold:lift", "lift a hold"),
    "hold list": ("trajlake.pipelines.cli_hold:show", "list holds"),
    "retain": ("trajlake.pipelines.cli_retain:retain", "expire what a policy says is due"),
    "erase": ("trajlake.pipelines.cli_erase:erase", "take texts out of every known place"),
    "pin": ("trajlake.pipelines.cli_pin:pin", "keep a snapshot's files under a name"),
    "unpin": ("trajlake.pipelines.cli_pin:unpin", "lift a pin"),
    "cas": ("", "the content store of a lake"),
    "cas get": ("trajlake.pipelines.cli_cas:get", "write the bytes of a blob"),
    "cas verify": ("trajlake.pipelines.cli_cas:verify", "read and check every object"),
    "cas gc": ("trajlake.pipelines.cli_cas:gc", "remove objects that nothing names"),
    "demo": ("trajlake.pipelines.cli_demo:demo", "the main job, told step by step: killed, settled, shipped, queried"),
    "sql": ("trajlake.pipelines.cli_sql:sql", "ask a lake in SQL, once, from a file, or in a shell"),
    "report": ("trajlake.pipelines.cli_report:report", "answer one of the questions asked of every lake"),
    "verify": ("trajlake.pipelines.cli_verify:verify", "check the hash chain of a lake or a root"),
    "audit": ("trajlake.pipelines.cli_audit:audit", "run the audit controls over a lake, and hand the evidence on"),
    "anchor": ("", "sign what stands in a lake, to be kept outside it"),
    "anchor key": ("trajlake.pipelines.cli_anchor:key", "make a key pair that signs anchors"),
    "anchor make": ("trajlake.pipelines.cli_anchor:make", "anchor what is new since the last anchor"),
    "anchor verify": ("trajlake.pipelines.cli_anchor:verify", "check anchors, proofs, and a copy of a lake, offline"),
    "anchor prove": ("trajlake.pipelines.cli_anchor:prove", "print an inclusion or a consistency proof"),
    "evidence": ("trajlake.pipelines.cli_evidence:evidence", "what an incident review needs of one trajectory"),
    "scan": ("trajlake.pipelines.cli_scan:scan", "look for secrets in payloads and blobs"),
    "curate": ("", "cut training sets, explain, rebuild and re-cut them"),
    "curate sft": ("trajlake.pipelines.cli_curate:sft", "cut an SFT set"),
    "curate rlvr": ("trajlake.pipelines.cli_curate:rlvr", "cut a set of RLVR tasks"),
    "curate explain": ("trajlake.pipelines.cli_curate:explain", "say why a trajectory is in or out"),
    "curate rebuild": ("trajlake.pipelines.cli_curate:rebuild", "cut a set again from its manifest"),
    "curate recut": ("trajlake.pipelines.cli_curate:recut", "list sets that hold erased trajectories"),
    "curate check": ("trajlake.pipelines.cli_curate:check", "compare a loader's share of trained tokens"),
    "curate policy": ("trajlake.pipelines.cli_curate:policy", "print a policy file to begin with"),
}
