"""The card of a set: what is in it, how it was made, what went and why, how to read each family's file."""

from __future__ import annotations

from typing import Final

from .funnel import as_table
from .manifest import Manifest

NOTES: Final = {
    "openai": "JSON lines; `weight` 0 marks replies that are context.",
    "trl": "`trl-messages` needs `assistant_only_loss=True`; `trl-prompt-completion` trains completions.",
    "trl-text": "As `trl`, arguments as text: for templates that read it (TRL passes arguments on unparsed).",
    "verl-sft": "Parquet for pandas; nulls fill the keys that a message lacks.",
    "prime-rl": "`messages`, or `prompt` and `completion` where earlier replies are context; `tools` is JSON text.",
    "skyrl": "Each row trains its last assistant message.",
    "axolotl": "Set `roles_to_train: []` and `message_field_training: training`; keep arguments as text.",
    "agent-traces": "One session file a row.",
    "verl-rl": "`data_source` is `trajlake`: name a reward function for it.",
    "skyrl-rl": "`env_class` and `reward_spec` name environment and verifier.",
    "verifiers": "`info` is JSON text.",
    "trl-grpo": "Flat columns become reward arguments; `environment` routes.",
}


def card_text(manifest: Manifest) -> str:
    """Return the card as Markdown with the front matter that dataset hubs read."""
    folders = sorted({facts.path.split("/")[0] for facts in manifest.files if "/" in facts.path} - {"agent-traces"})
    lines = ["---", f"pretty_name: {manifest.name} {manifest.kind}", "tags: [agent, tool-use]", "configs:"]
    for folder in folders:
        names = sorted({facts.path for facts in manifest.files if facts.path.startswith(f"{folder}/")})
        lines += [f"- config_name: {folder}", "  data_files:"]
        for path in names:
            split = path.rsplit("/", 1)[1].partition(".")[0]
            lines += [f"  - split: {split}", f"    path: {path}"]
    lines += ["---", "", f"# {manifest.name} ({manifest.kind})", ""]
    lines += [
        f"{manifest.rows:,} rows from snapshot {manifest.snapshot}, erasure epoch {manifest.erasure_epoch}; "
        + ", ".join(f"{split} {count:,}" for split, count in manifest.splits.items())
        + ".",
        "",
        f"Expected share of trained tokens: {manifest.trained_share:.4f}.",
        "A loader that sees another share masks something else: `trajlake curate check SET --share X`.",
        "",
        "## Rebuild",
        "",
        f"Pin `{manifest.pin}`, policy `{manifest.policy_sha256}`, rows root `{manifest.row_root}`.",
        "`trajlake curate rebuild SET --out DIR` gives the same bytes.",
        "",
        "## Funnel",
        "",
        "```",
        as_table(manifest.funnel),
        "```",
        "",
        "Every drop has a row in `ledger.parquet`.",
        "",
        "## Files",
        "",
    ]
    for family in manifest.families:
        lines.append(f"* `{family}`: {NOTES.get(family, '')}")
        for reason, count in manifest.refused.get(family, {}).items():
            lines.append(f"  {count:,} rows are not in it: {reason}.")
    lines += ["", "## Evaluations kept out", ""]
    lines += [f"* `{name}` {digest}" for name, digest in manifest.evaluation_sha256.items()] or ["None were named."]
    return "\n".join(lines) + "\n"
