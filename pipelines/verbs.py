"""The verbs that `pipelines` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "compact": ("trajlake.pipelines.commands.compact:compact", "take landed segments into a lake"),
    "maintain": ("trajlake.pipelines.commands.maintain:maintain", "merge small files, expire snapshots, vacuum"),
    "hold": ("", "forbid deletion, and lift that again"),
    "hold place": ("trajlake.pipelines.commands.hold:place", "place a hold"),
    "hold lift": ("trajlake.pipelines.commands.hold:lift", "lift a hold"),
    "hold list": ("trajlake.pipelines.commands.hold:show", "list holds"),
    "retain": ("trajlake.pipelines.commands.retain:retain", "expire what a policy says is due"),
    "erase": ("trajlake.pipelines.commands.erase:erase", "take texts out of every known place"),
    "pin": ("trajlake.pipelines.commands.pin:pin", "keep a snapshot's files under a name"),
    "unpin": ("trajlake.pipelines.commands.pin:unpin", "lift a pin"),
    "cas": ("", "the content store of a lake"),
    "cas get": ("trajlake.pipelines.commands.cas:get", "write the bytes of a blob"),
    "cas verify": ("trajlake.pipelines.commands.cas:verify", "read and check every object"),
    "cas gc": ("trajlake.pipelines.commands.cas:gc", "remove objects that nothing names"),
    "demo": (
        "trajlake.pipelines.commands.demo:demo",
        "the main job, told step by step: killed, settled, shipped, queried",
    ),
    "sql": ("trajlake.pipelines.commands.sql:sql", "ask a lake in SQL, once, from a file, or in a shell"),
    "report": ("trajlake.pipelines.commands.report:report", "answer one of the questions asked of every lake"),
    "verify": ("trajlake.pipelines.commands.verify:verify", "check the hash chain of a lake or a root"),
    "audit": (
        "trajlake.pipelines.commands.audit:audit",
        "run the audit controls over a lake, and hand the evidence on",
    ),
    "anchor": ("", "sign what stands in a lake, to be kept outside it"),
    "anchor key": ("trajlake.pipelines.commands.anchor:key", "make a key pair that signs anchors"),
    "anchor make": ("trajlake.pipelines.commands.anchor:make", "anchor what is new since the last anchor"),
    "anchor verify": (
        "trajlake.pipelines.commands.anchor:verify",
        "check anchors, proofs, and a copy of a lake, offline",
    ),
    "anchor prove": ("trajlake.pipelines.commands.anchor:prove", "print an inclusion or a consistency proof"),
    "evidence": ("trajlake.pipelines.commands.evidence:evidence", "what an incident review needs of one trajectory"),
    "scan": ("trajlake.pipelines.commands.scan:scan", "look for secrets in payloads and blobs"),
    "curate": ("", "cut training sets, explain, rebuild and re-cut them"),
    "curate sft": ("trajlake.pipelines.commands.curate:sft", "cut an SFT set"),
    "curate rlvr": ("trajlake.pipelines.commands.curate:rlvr", "cut a set of RLVR tasks"),
    "curate explain": ("trajlake.pipelines.commands.curate:explain", "say why a trajectory is in or out"),
    "curate rebuild": ("trajlake.pipelines.commands.curate:rebuild", "cut a set again from its manifest"),
    "curate recut": ("trajlake.pipelines.commands.curate:recut", "list sets that hold erased trajectories"),
    "curate check": ("trajlake.pipelines.commands.curate:check", "compare a loader's share of trained tokens"),
    "curate policy": ("trajlake.pipelines.commands.curate:policy", "print a policy file to begin with"),
}
