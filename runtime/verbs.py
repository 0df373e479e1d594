"""The verbs that `runtime` owns: name -> (target, one-line summary). Data only; see the head of `runtime/cli.py`."""

from __future__ import annotations

from typing import Final

VERBS: Final[dict[str, tuple[str, str]]] = {
    "init": ("trajlake.runtime.cli_settings:init", "write a commented trajlake.toml"),
    "config": ("trajlake.runtime.cli_settings:config", "show the settings in force and where each comes from"),
    "journal": ("", "look into a root's segments, and let go of landed ones"),
    "journal ls": ("trajlake.runtime.cli_journal:ls", "list writers and segments"),
    "journal verify": ("trajlake.runtime.cli_journal:verify", "check frames, histories, hash chains and blobs"),
    "journal tail": ("trajlake.runtime.cli_journal:tail", "show the last events"),
    "journal dump": ("trajlake.runtime.cli_journal:dump", "write every event as a line of JSON"),
    "journal retain": ("trajlake.runtime.cli_storage:retain", "drop sealed segments that the landing holds"),
    "gc": ("trajlake.runtime.cli_storage:gc", "remove unreferenced blobs, dead writers, old checkpoints"),
    "doctor": ("trajlake.runtime.cli_doctor:doctor", "measure the disk, and say what to expect of it"),
    "backup": ("trajlake.runtime.cli_storage:backup", "copy a root beside what runs on it"),
    "restore": ("trajlake.runtime.cli_storage:restore", "make a root from a backup; no old token is given again"),
    "status": ("trajlake.runtime.cli_status:status", "every trajectory of a root, and what waits for a person"),
    "show": ("trajlake.runtime.cli_show:show", "one trajectory, turn by turn"),
    "replay": ("trajlake.runtime.cli_replay:replay", "run the harness on recorded trajectories, and compare"),
    "branch": ("trajlake.runtime.cli_branch:branch", "go on from a recorded turn with one thing changed"),
    "diverge": ("trajlake.runtime.cli_diverge:diverge", "where two trajectories part, and why"),
    "handover": ("trajlake.runtime.cli_handover:handover", "what a new operator needs to go on"),
    "resume": ("trajlake.runtime.cli_run:resume", "go on with a trajectory at its open turn"),
    "recover": ("trajlake.runtime.cli_run:recover", "resume every open trajectory that nobody works on"),
    "crashtest": ("trajlake.runtime.cli_crashtest:crashtest", "kill an agent at every boundary, resume, and compare"),
    "plan": ("trajlake.runtime.cli_plan:plan", "how often to checkpoint, and what a crash costs"),
    "settle": ("trajlake.runtime.cli_mail:settle", "say whether an effect in doubt happened"),
    "approve": ("trajlake.runtime.cli_mail:approve", "grant what a trajectory asks for"),
    "deny": ("trajlake.runtime.cli_mail:deny", "refuse what a trajectory asks for"),
    "cancel": ("trajlake.runtime.cli_mail:cancel", "ask a trajectory to stop"),
    "deliver": ("trajlake.runtime.cli_mail:deliver", "deliver the result of an asynchronous job"),
    "steer": ("trajlake.runtime.cli_mail:steer", "say something to a trajectory's model"),
}
