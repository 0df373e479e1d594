"""The verbs that `runtime` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "init": ("trajlake.runtime.commands.settings:init", "write a commented trajlake.toml"),
    "config": ("trajlake.runtime.commands.settings:config", "show the settings in force and where each comes from"),
    "journal": ("", "look into a root's segments, and let go of landed ones"),
    "journal ls": ("trajlake.runtime.commands.journal:ls", "list writers and segments"),
    "journal verify": ("trajlake.runtime.commands.journal:verify", "check frames, histories, hash chains and blobs"),
    "journal tail": ("trajlake.runtime.commands.journal:tail", "show the last events"),
    "journal dump": ("trajlake.runtime.commands.journal:dump", "write every event as a line of JSON"),
    "journal retain": ("trajlake.runtime.commands.storage:retain", "drop sealed segments that the landing holds"),
    "gc": ("trajlake.runtime.commands.storage:gc", "remove unreferenced blobs, dead writers, old checkpoints"),
    "doctor": ("trajlake.runtime.commands.doctor:doctor", "measure the disk, and say what to expect of it"),
    "backup": ("trajlake.runtime.commands.storage:backup", "copy a root beside what runs on it"),
    "restore": ("trajlake.runtime.commands.storage:restore", "make a root from a backup; no old token is given again"),
    "status": ("trajlake.runtime.commands.status:status", "every trajectory of a root, and what waits for a person"),
    "show": ("trajlake.runtime.commands.show:show", "one trajectory, turn by turn"),
    "replay": ("trajlake.runtime.commands.replay:replay", "run the harness on recorded trajectories, and compare"),
    "branch": ("trajlake.runtime.commands.branch:branch", "go on from a recorded turn with one thing changed"),
    "diverge": ("trajlake.runtime.commands.diverge:diverge", "where two trajectories part, and why"),
    "handover": ("trajlake.runtime.commands.handover:handover", "what a new operator needs to go on"),
    "resume": ("trajlake.runtime.commands.run:resume", "go on with a trajectory at its open turn"),
    "recover": ("trajlake.runtime.commands.run:recover", "resume every open trajectory that nobody works on"),
    "crashtest": (
        "trajlake.runtime.commands.crashtest:crashtest",
        "kill an agent at every boundary, resume, and compare",
    ),
    "plan": ("trajlake.runtime.commands.plan:plan", "how often to checkpoint, and what a crash costs"),
    "settle": ("trajlake.runtime.commands.mail:settle", "say whether an effect in doubt happened"),
    "approve": ("trajlake.runtime.commands.mail:approve", "grant what a trajectory asks for"),
    "deny": ("trajlake.runtime.commands.mail:deny", "refuse what a trajectory asks for"),
    "cancel": ("trajlake.runtime.commands.mail:cancel", "ask a trajectory to stop"),
    "deliver": ("trajlake.runtime.commands.mail:deliver", "deliver the result of an asynchronous job"),
    "steer": ("trajlake.runtime.commands.mail:steer", "say something to a trajectory's model"),
}
