"""The policy of a training set: one TOML file, validated whole, documented key by key, and named by its hash.

Every key has a default and the defaults refuse: without a policy that lists tenants and models nothing is let in.
Unknown keys are errors. `STARTER` is a policy to begin with; `README.md` explains each key.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.canonical_json import canonical

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: unknown keys are refused by name."""


class Eligibility(_Part, frozen=True, kw_only=True):
    """Consent, licence, residency: what may train at all. Erased trajectories never do; a hold changes nothing here."""

    tenants: tuple[str, ...] = ()
    kinds: tuple[Literal["live", "imported"], ...] = ("live", "imported")
    source_formats: tuple[str, ...] = ("*",)
    refuse_subjects: tuple[str, ...] = ()
    refuse_trajectories: tuple[str, ...] = ()


class Integrity(_Part, frozen=True, kw_only=True):
    """`verify_chain` recomputes every hash that a row stands on. `undeclared` says what may break a prefix unsaid."""

    verify_chain: bool = True
    undeclared: Literal["error", "imports are cut"] = "error"


class Replay(_Part, frozen=True, kw_only=True):
    """Only trajectories annotated `replay = same`; imported ones are not applicable and let in or not."""

    required: bool = False
    imported: Literal["admit", "drop"] = "admit"


class Outcome(_Part, frozen=True, kw_only=True):
    statuses: tuple[Literal["completed", "failed", "cancelled", "interrupted", "open"], ...] = ("completed",)
    truncated: Literal["drop", "with reward", "keep"] = "with reward"


class Reward(_Part, frozen=True, kw_only=True):
    """Rejection sampling. A verifier without a version does not count unless `unversioned`."""

    required: bool = True
    verifier: str = "*"
    minimum: float = 1.0
    unversioned: bool = False


class Verifier(_Part, frozen=True, kw_only=True):
    """A task on which one verifier gave one trajectory two verdicts is set aside whole."""

    flaky: Literal["drop", "keep"] = "drop"


class Leak(_Part, frozen=True, kw_only=True):
    """Regular expressions (Rust's syntax) over the arguments of calls; the built-in ones look for the fix's history."""

    built_in: bool = True
    patterns: tuple[str, ...] = ()


class ModelRule(_Part, frozen=True, kw_only=True):
    served_model: str
    system_no: tuple[int, ...] = ()


class Models(_Part, frozen=True, kw_only=True):
    """Replies of other models are context, never targets. A rule without `system_no` admits every one."""

    allow: tuple[str | ModelRule, ...] = ()

    def rules(self) -> tuple[ModelRule, ...]:
        return tuple(ModelRule(served_model=one) if isinstance(one, str) else one for one in self.allow)


class Structure(_Part, frozen=True, kw_only=True):
    shown_tools: bool = True
    bad_arguments: Literal["mask", "drop"] = "mask"


class Loops(_Part, frozen=True, kw_only=True):
    repeats: Annotated[int, msgspec.Meta(ge=2)] = 4
    ratio: Share = 0.82


class Length(_Part, frozen=True, kw_only=True):
    """`counter` is `characters/N` or `module:function` (text to tokens of the target); 0 = no limit."""

    replies_min: Count = 2
    tokens_max: Count = 0
    counter: str = "characters/4"


class Masking(_Part, frozen=True, kw_only=True):
    failed_steps: bool = True


class Secrets(_Part, frozen=True, kw_only=True):
    """`redact` changes tool output only, says so in each row, and drops what it cannot make clean."""

    action: Literal["drop", "redact"] = "drop"


class Pii(_Part, frozen=True, kw_only=True):
    finder: Literal["off", "patterns", "presidio"] = "off"
    action: Literal["drop", "redact"] = "drop"


class Duplicates(_Part, frozen=True, kw_only=True):
    """Exact duplicates always go. `near` needs the extra near-duplicates."""

    near: bool = False
    threshold: Share = 0.8


class Contamination(_Part, frozen=True, kw_only=True):
    """Files of evaluation prompts and gold answers: JSON lines (every text in them) or plain text; and task ids."""

    files: tuple[str, ...] = ()
    words: Annotated[int, msgspec.Meta(ge=3, le=50)] = 13
    task_ids: tuple[str, ...] = ()


class Caps(_Part, frozen=True, kw_only=True):
    """`per_task` rows' trajectories; `group_share` of all rows for one split group. 0 = no cap."""

    per_task: Count = 3
    group_share: Share = 0.0


class Split(_Part, frozen=True, kw_only=True):
    """Whole groups go to validation. `group` is `task`, `agent`, or a JSON pointer into the task."""

    validation: Share = 0.0
    group: str = "task"


class Prefix(_Part, frozen=True, kw_only=True):
    """`template`: a chat template file (jinja2). Rows that it does not keep prefixes of become one row per step."""

    template: str = ""
    arguments: Literal["text", "object"] = "text"


class Tasks(_Part, frozen=True, kw_only=True):
    """RLVR. Pointers lead into a judgement's details; texts that do not begin with `/` stand for themselves."""

    attempts_min: Count = 8
    keep_solved: bool = False
    ground_truth: str = "/ground_truth"
    environment: str = "/environment"
    verifier_arguments: str = "/arguments"


class Policy(_Part, frozen=True, kw_only=True):
    """A whole policy. `name` is the family of sets that share a pin's name and a cache."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,64}\Z")] = "set"
    seed: int = 0
    eligibility: Eligibility = Eligibility()
    integrity: Integrity = Integrity()
    replay: Replay = Replay()
    outcome: Outcome = Outcome()
    reward: Reward = Reward()
    verifier: Verifier = Verifier()
    leak: Leak = Leak()
    models: Models = Models()
    structure: Structure = Structure()
    loops: Loops = Loops()
    length: Length = Length()
    masking: Masking = Masking()
    secrets: Secrets = Secrets()
    pii: Pii = Pii()
    duplicates: Duplicates = Duplicates()
    contamination: Contamination = Contamination()
    caps: Caps = Caps()
    split: Split = Split()
    prefix: Prefix = Prefix()
    tasks: Tasks = Tasks()


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with what it names: text, hash, and the bytes of its evaluation files and template, by name."""

    policy: Policy
    text: str
    sha256: str
    evaluations: dict[str, bytes] = {}
    template: str = ""

    @property
    def input_hashes(self) -> dict[str, str]:
        """Return sha256 of every evaluation file, by name."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(self.evaluations.items())}


def load_policy(path: str | Path) -> Loaded:
    """Read and check a policy file; raise `UserError` with the key that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no policy there; write one with 'trajlake curate policy > {path}'") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text at byte {error.start}") from None
    return parse_policy(text, str(path))


def parse_policy(text: str, name: str = "policy") -> Loaded:
    """Return the policy that `text` holds; files it names are found beside `name`, or in `inputs` there."""
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: not TOML: {error}") from None
    try:
        policy = msgspec.convert(tree, Policy)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {_where(str(error))}; see 'trajlake curate policy'") from None
    _check_expressions(policy, name)
    folder = os.path.dirname(os.path.abspath(name))
    evaluations = {os.path.basename(one): _read(folder, one, name) for one in policy.contamination.files}
    if len(evaluations) != len(policy.contamination.files):
        raise UserError(f"{name}: contamination.files: two files have one name; rename one")
    template = _read(folder, policy.prefix.template, name).decode() if policy.prefix.template else ""
    facts = {
        "policy": msgspec.to_builtins(policy),
        "evaluations": {key: hashlib.sha256(data).hexdigest() for key, data in sorted(evaluations.items())},
        "template": hashlib.sha256(template.encode()).hexdigest(),
    }
    digest = hashlib.sha256(canonical(facts)).hexdigest()
    return Loaded(policy=policy, text=text, sha256=digest, evaluations=evaluations, template=template)


def _check_expressions(policy: Policy, name: str) -> None:
    import polars as pl

    for pattern in policy.leak.patterns:
        try:
            pl.select(pl.lit("").str.contains(pattern))
        except pl.exceptions.ComputeError as error:
            raise UserError(f"{name}: leak.patterns: {pattern!r}: {str(error).splitlines()[-1].strip()}") from None


def _read(folder: str, relative: str, name: str) -> bytes:
    for place in (os.path.join(folder, relative), os.path.join(folder, "inputs", os.path.basename(relative))):
        try:
            with open(place, "rb") as file:
                return file.read()
        except FileNotFoundError:
            continue
    raise UserError(f"{name}: {relative}: no such file beside the policy (nor in its inputs folder)")


def _where(message: str) -> str:
    what, _, place = message.partition(" - at `$")
    return f"{place.strip('.`') or 'policy'}: {what}"


STARTER: Final = """\
# A policy for `trajlake curate`. What it does not grant is refused; every key and default: pipelines/curate/README.md
name = "nightly"
seed = 0

[eligibility]
tenants = ["default"]          # whose trajectories may train: nobody's unless listed

[outcome]
statuses = ["completed"]       # imports without a recorded end are "open"

[reward]
required = true                # rejection sampling: at least `minimum` by a versioned verifier
minimum = 1.0

[models]
allow = ["*"]                  # served models whose replies are targets; others are context

[length]
replies_min = 2

[caps]
per_task = 3

[split]
validation = 0.0
"""
