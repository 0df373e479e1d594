"""`trajlake curate`: cut training sets, see why something is in or out, rebuild them, and know which to cut again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from ..curate.cut import Cut, CutOptions

PolicyFile = Annotated[
    str, typer.Option("--policy", help="The policy file (TOML); 'trajlake curate policy' prints one.")
]
LakeOption = Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")]
OutFolder = Annotated[str, typer.Option("--out", help="The new folder of the set.")]
Families = Annotated[str, typer.Option("--to", help="Families of writers, with commas.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that read events.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the funnel and write nothing.")]
PinName = Annotated[str, typer.Option("--pin", help="Name of the pin; made from policy and snapshot when absent.")]
SnapshotOption = Annotated[int | None, typer.Option("--snapshot", help="Cut from this snapshot, not the newest.")]
RunnerOption = Annotated[str | None, typer.Option("--runner", help="A Beam runner to read events on.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def sft(
    policy: PolicyFile = "policy.toml", lake: LakeOption = None, out: OutFolder = "", to: Families = "openai",
    workers: Workers = 2, dry_run: DryRun = False, pin: PinName = "", snapshot: SnapshotOption = None,
    runner: RunnerOption = None, as_json: Json = False,
) -> int:  # fmt: skip
    """Cut an SFT set: every kept reply trains once, in the context it was given. Families: openai, trl, trl-text,
    verl-sft, prime-rl, skyrl, axolotl, agent-traces."""
    from ..curate.cut import cut_sft
    from ..curate.policy import load_policy

    cut = cut_sft(load(lake=lake).lake, load_policy(policy), out, _options(to, workers, dry_run, pin, snapshot, runner))
    _show(cut, as_json)
    return EXIT_DONE


def rlvr(
    policy: PolicyFile = "policy.toml", lake: LakeOption = None, out: OutFolder = "", to: Families = "verl-rl",
    workers: Workers = 2, dry_run: DryRun = False, pin: PinName = "", snapshot: SnapshotOption = None,
    runner: RunnerOption = None, as_json: Json = False,
) -> int:  # fmt: skip
    """Cut a set of RLVR tasks with pass rates. Families: verl-rl, skyrl-rl, verifiers, trl-grpo."""
    from ..curate.policy import load_policy
    from ..curate.rlvr import cut_rlvr

    cut = cut_rlvr(
        load(lake=lake).lake, load_policy(policy), out, _options(to, workers, dry_run, pin, snapshot, runner)
    )
    _show(cut, as_json)
    return EXIT_DONE


def explain(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    policy: PolicyFile = "policy.toml",
    lake: LakeOption = None,
    set_folder: Annotated[str, typer.Option("--set", help="Ask this set's own ledger, not the policy.")] = "",
    workers: Workers = 2,
    as_json: Json = False,
) -> int:
    """Say why a trajectory is in a set or not. Exit 1 where nothing of it is in."""
    from ..curate.explain import explain as explain_policy
    from ..curate.explain import explain_set
    from ..curate.policy import load_policy

    if set_folder:
        found = explain_set(set_folder, trajectory_id)
    else:
        options = _options("openai", workers, True, "", None, None)
        found = explain_policy(load(lake=lake).lake, trajectory_id, load_policy(policy), options)
    if as_json:
        _print_json(found)
    else:
        for one in found:
            for number, split in one.kept:
                print(f"{one.tenant} {one.trajectory_id}: segment {number} is in ({split})")
            for segment, stage, reason, detail in one.dropped:
                what = "the trajectory" if segment is None or segment < 0 else f"segment {segment}"
                print(
                    f"{one.tenant} {one.trajectory_id}: {what} is out at {stage}: {reason}"
                    + (f" ({detail})" if detail else "")
                )
    return EXIT_DONE if any(one.is_in for one in found) else EXIT_FINDINGS


def rebuild(
    set_folder: Annotated[str, typer.Argument(metavar="SET", help="The set, or its manifest.")],
    out: OutFolder = "",
    lake: LakeOption = None,
    workers: Workers = 2,
    as_json: Json = False,
) -> int:
    """Cut a set again from its manifest and pin. Exit 1 where a byte differs, with what differs."""
    from ..curate.rebuild import rebuild as rebuild_set

    if not out:
        raise UserError("rebuild: name the new folder with --out")
    done = rebuild_set(load(lake=lake).lake, set_folder, out, _options("openai", workers, False, "", None, None))
    if as_json:
        _print_json({"rows": done.manifest.rows, "row_root": done.manifest.row_root, "differences": done.differences})
    else:
        for line in done.differences:
            print(line)
        print(
            f"{done.manifest.rows:,} rows, root {done.manifest.row_root}: "
            + ("differs" if done.differences else "the same bytes")
        )
    return EXIT_FINDINGS if done.differences else EXIT_DONE


def recut(lake: LakeOption = None, as_json: Json = False) -> int:
    """List the sets that hold erased trajectories. Exit 1 where there is one."""
    from ..curate.recut import sets_to_recut
    from ..lakehouse.lake import Lake

    found = sets_to_recut(Lake.open(load(lake=lake).lake))
    if as_json:
        _print_json(found)
    else:
        for one in found:
            where = ", ".join(one.paths) or "no known path"
            print(f"{one.set_name}: {len(one.trajectories):,} erased trajectories; cut again: {where}")
        print(f"{len(found):,} sets to cut again")
    return EXIT_FINDINGS if found else EXIT_DONE


def check(
    set_folder: Annotated[str, typer.Argument(metavar="SET", help="The set, or its manifest.")],
    share: Annotated[float, typer.Option("--share", help="Share of tokens that a loader trains on.")],
) -> int:
    """Compare what a loader trains on with what the set says. Exit 1 where it is off by more than 1 %."""
    from ..curate.manifest import read_manifest
    from ..curate.rebuild import check_share

    wrong = check_share(read_manifest(set_folder), share)
    print(wrong or "the loader trains on what the set says")
    return EXIT_FINDINGS if wrong else EXIT_DONE


def policy() -> int:
    """Print a policy file to begin with."""
    from ..curate.policy import STARTER

    sys.stdout.write(STARTER)
    return EXIT_DONE


def _options(to: str, workers: int, dry_run: bool, pin: str, snapshot: int | None, runner: str | None) -> CutOptions:
    from ..curate.cut import CutOptions

    families = tuple(name.strip() for name in to.split(",") if name.strip())
    if not families:
        raise UserError("--to: name at least one family")
    return CutOptions(families=families, workers=workers, dry_run=dry_run, pin=pin, snapshot=snapshot, runner=runner)


def _show(cut: Cut, as_json: bool) -> None:
    from ..curate.funnel import as_table, why_empty

    if as_json:
        tree: dict[str, Any] = {"rows": cut.rows, "read_anew": cut.read_anew, "funnel": cut.funnel.steps}
        if cut.manifest is not None:
            tree |= {"pin": cut.manifest.pin, "row_root": cut.manifest.row_root, "refused": cut.manifest.refused}
        _print_json(tree)
        return
    print(as_table(cut.funnel.steps))
    print(f"{cut.rows:,} rows; {cut.read_anew:,} trajectories read anew")
    if not cut.rows:
        print(f"the set {'would be' if cut.manifest is None else 'is'} empty: {why_empty(cut.funnel.steps)}")
    if cut.manifest is not None:
        for family, reasons in cut.manifest.refused.items():
            told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
            print(f"{family}: rows it cannot hold: {told}")
        print(f"trained share of tokens {cut.manifest.trained_share:.4f}; pin {cut.manifest.pin}")


def _print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
