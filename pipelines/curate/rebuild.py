"""A set again from its manifest: the pinned files, the policy beside it, the same code. The same bytes, or why not."""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import msgspec

from trajlake.pipelines.lakehouse.pins import read_pin
from trajlake.pipelines.lakehouse.places import resolved
from trajlake.runtime.cli_errors import UserError

from .cut import CutOptions, finish, manifest_members, new_folder, run_of, write_sft
from .manifest import NAME, Manifest, libraries, read_manifest
from .pinned import PinnedLake, snapshot_of
from .policy import load_policy
from .select import choose
from .sources import Sources


class Rebuilt(NamedTuple):
    """`differences` is empty where every file has the bytes of the first cut."""

    manifest: Manifest
    differences: list[str]


def rebuild(lake: str, set_folder: str, out: str, options: CutOptions) -> Rebuilt:
    """Cut the set of `set_folder` again from its pin into the new folder `out`, and compare.

    Raises `UserError` where the policy beside it has another hash; a newer erasure of the pin is a difference that is
    named, for the promise is by (manifest, erasure epoch).
    """
    old = read_manifest(set_folder)
    folder = set_folder if os.path.isdir(set_folder) else os.path.dirname(set_folder)
    loaded = load_policy(os.path.join(folder, "policy.toml"))
    if loaded.sha256 != old.policy_sha256:
        raise UserError(f"{folder}/policy.toml: its hash is not the manifest's; restore the policy and its inputs")
    path = resolved(lake, "lake")
    from trajlake.pipelines.lakehouse.lake import Lake

    pin = read_pin(Lake.open(path), old.pin)
    pinned = PinnedLake(path, pin)
    sources = Sources(pinned, snapshot_of(pin), pin.files.get("secrets", []))
    target = new_folder(out)
    if old.kind == "rlvr":
        from .rlvr import choose_tasks, write_rlvr

        tasks, kept, funnel, _ = choose_tasks(sources, loaded, options)
        new = write_rlvr(target, sources, loaded, tasks, kept, funnel, old.families, old.pin)
    else:
        chosen = choose(sources, loaded, run_of(options))
        kept = chosen.kept
        new = write_sft(target, sources, loaded, chosen, old.families, old.pin)
    finish(pinned, sources, loaded, new, kept, target, manifest_members(target))
    return Rebuilt(new, _differences(old, new, folder, os.path.abspath(out)))


def _differences(old: Manifest, new: Manifest, first: str, second: str) -> list[str]:
    found: list[str] = []
    now = libraries()
    found += [
        f"library {name}: {version} then, {now.get(name, 'absent')} now"
        for name, version in old.libraries.items()
        if now.get(name) != version
    ]
    if old.erasure_epoch != new.erasure_epoch:
        found.append(f"erasure epoch: {old.erasure_epoch} then, {new.erasure_epoch} now")
    before = {facts.path: facts for facts in old.files}
    after = {facts.path: facts for facts in new.files}
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            found.append(f"{path}: {'differs' if path in before and path in after else 'only in one'}")
    if not found and _hash(os.path.join(first, NAME)) != _hash(os.path.join(second, NAME)):
        found += [
            f"manifest: {name} differs"
            for name in old.__struct_fields__
            if msgspec.json.encode(getattr(old, name)) != msgspec.json.encode(getattr(new, name))
        ] or ["manifest: its text differs"]
    return found


def _hash(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_share(manifest: Manifest, share: float) -> str | None:
    """Return what is wrong with a loader that sees `share` of its tokens trained; None within 1 %.

    A loader that ignores masks trains on everything; one that truncates may train on nothing. Neither says so.
    """
    if abs(share - manifest.trained_share) <= 0.01 * max(manifest.trained_share, 1e-9):
        return None
    expected = manifest.trained_share
    return f"trained share of tokens: {share:.4f} seen, {expected:.4f} expected; the loader masks something else"
