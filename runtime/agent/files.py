"""The workspace of a trajectory in hand: what a `local` call changed, recorded so that it can be applied again.

Everything found changed since the last record is recorded with the call that ends next: whoever changed it. A change
that could not be recorded makes the result `opaque`; its hash still says which files the state goes with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trajlake.schemas.events import FileChange

from ..checkpoints.workspace import Workspace
from ..checkpoints.workspace_tree import Folder, WorkspaceError, changes_between, decoded
from ..env import Env, read_file
from .ports import Blobs, Ports
from .requests import Block, Steps
from .rules import Rules


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a result says of the files: the fields `changes`, `workspace` and `opaque` of `ToolResult`."""

    changes: tuple[FileChange, ...] = ()
    workspace: str | None = None
    opaque: bool = False

    def fields(self) -> dict[str, Any]:
        return {"changes": self.changes, "workspace": self.workspace, "opaque": self.opaque}


UNTRACKED = Recorded(opaque=True)


class Everywhere:
    """Blobs that are put in the replica too, as a checkpoint's must be before it is named."""

    def __init__(self, blobs: Any) -> None:
        self.put = blobs.put_everywhere
        self.get = blobs.get


def kept_everywhere(blobs: Blobs) -> Blobs:
    """Return where the objects of checkpoints and workspaces go."""
    return Everywhere(blobs) if hasattr(blobs, "put_everywhere") else blobs


class Files:
    """The tracked folder of one session. `tree` is what the record says the folder holds."""

    def __init__(self, ports: Ports, rules: Rules, path: str, tenant: str) -> None:
        env: Env = ports.files_env or ports.env
        self.workspace = Workspace(env, path, ignore=rules.ignore, outside=ports.own_paths)
        self.tenant = tenant
        self.tree: Folder | None = None
        self._blobs: Blobs = kept_everywhere(ports.blobs)

    def snapshot(self) -> str:
        """Save the whole folder as it is now; return its hash once every object is durable. Blocks."""
        tree = self.workspace.look()
        self.bytes_written = self.workspace.save(tree, self._blobs, self.tenant)
        self.tree = tree
        return tree.sha256

    bytes_written: int = 0

    def record(self, *, opaque: bool = False) -> Recorded:
        """Find what changed since the last record and make the changed files durable. Blocks.

        `opaque`: the tool says that its change is not to be recorded. A folder that does not keep still (a body past
        its timeout still writes) is opaque too, and has no hash.
        """
        try:
            tree = self.workspace.look()
            before, self.tree = self.tree, tree
            if before is None or opaque:
                return Recorded(workspace=tree.sha256, opaque=True)
            changes = changes_between(before, tree)
            self._keep(changes)
        except (WorkspaceError, OSError):
            return Recorded(opaque=True)
        return Recorded(tuple(changes), tree.sha256)

    def _keep(self, changes: list[FileChange]) -> None:
        for change in changes:
            if change.sha256 is None:
                continue
            path = "/".join([self.workspace.path, *(decoded(part) for part in change.path.split("/"))])
            if self._blobs.put(self.tenant, read_file(self.workspace.env, path)) != change.sha256:
                raise WorkspaceError(f"workspace: {path} changed while its change was recorded")


def record_change(files: Files | None, *, opaque: bool) -> Steps:
    """Return the `Recorded` of a `local` call that just ended."""
    if files is None:
        return UNTRACKED
    found: Recorded = yield Block(lambda: files.record(opaque=opaque))
    return found
