"""`Journal`: one per process. It opens the root, holds the tools, and runs agents. Source: design/agent.md.

Opening touches nothing but `root.json`, so an agent's module can be imported on a read-only disk; the first `run`
claims a writer directory and recovers it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

from msgspec import UNSET

from trajlake.schemas.events import ParentAction, ToolDeclaration
from trajlake.schemas.history import canonical
from trajlake.schemas.ids import check_tenant, check_trajectory_id

from .agent import driver_async, driver_sync
from .agent.authority import principal_of
from .agent.authorize import policy_version
from .agent.enter import Order
from .agent.errors import Busy, Misuse
from .agent.outcome import Outcome
from .agent.ports import Blobs, Log, Ports
from .agent.session import Session, Setup
from .checkpoints.checkpoint import CheckpointFiles
from .env import REAL_ENV, Env
from .leases.lease_keeper import LeaseKeeper
from .mailbox.mail import MailItem
from .mailbox.posting import Postman
from .replicas.replica import Replica
from .replicas.replicated_log import ReplicatedBlobs, ReplicatedLog
from .replicas.replication import Replication
from .root import Root
from .root_log import RootLog
from .stores import arbiter, lease_store, mail_store
from .stores import replica as opened_replica
from .tools import Tool, ToolOptions, declared_schema_hash, make_tool
from .wal.writer_options import WriterOptions


class Journal:
    """Tools, stores and the writer of one process. Safe from any thread; each trajectory belongs to one."""

    def __init__(
        self, root: Root, *, tenant: str, principal: str | None, leases: Any, policy: Any, env: Env,
        options: WriterOptions | None, replica: Replica | None = None, replicate: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.root, self.tenant, self.principal, self.policy = root, tenant, principal, policy
        self.tools: dict[str, Tool] = {}
        self.resolvers: dict[str, Callable[..., Any]] = {}
        self._env, self._leases, self._options = env, leases, options
        self._replica, self._replicate = replica, tuple(sorted(set(replicate)))
        self._replication: Replication | None = None
        self._lock = threading.Lock()
        self._closed = self._draining = False
        self._ports: Ports | None = None
        self._pid = 0
        self._log: RootLog | None = None
        self._keeper: LeaseKeeper | None = None
        self._mail = mail_store(root)

    @classmethod
    def open(
        cls, root: str | os.PathLike[str], *, tenant: str = "default", principal: str | None = None,
        leases: Any = None, replica: Any = None, replicate: Sequence[str] = (), policy: Any = None,
        env: Env = REAL_ENV, options: WriterOptions | None = None,
    ) -> Journal:  # fmt: skip
        """Open (or create) the root. Raises `RootError`.

        `leases`, `replica`: a URL, which `root.json` then records for every other process, or an object of the
        protocol. With a replica, whatever is shown waits for its acknowledgement; `replicate` names the effect classes
        whose intents do too, for which the trajectory so promises to survive the loss of this host.
        """
        check_tenant(tenant)
        named = {name: url for name, url in (("lease", leases), ("replica", replica)) if isinstance(url, str)}
        opened = Root.open(root, env, stores=named or None)
        second = opened_replica(opened) if replica is None or isinstance(replica, str) else replica
        if replicate and second is None:
            raise Misuse("Journal.open: replicate names effect classes, but there is no replica: give its URL")
        if unknown := set(replicate) - {"read", "local", "idempotent", "external"}:
            raise Misuse(f"Journal.open: replicate names no effect class: {', '.join(sorted(unknown))}")
        return cls(
            opened, tenant=tenant, principal=principal, leases=None if isinstance(leases, str) else leases,
            policy=policy, env=env, options=options, replica=second, replicate=replicate,
        )  # fmt: skip

    # -- what is registered ----------------------------------------------------------------------------------------

    @overload
    def tool(self, function: Callable[..., Any]) -> Tool: ...

    @overload
    def tool(self, function: None = None, **options: Any) -> Callable[[Callable[..., Any]], Tool]: ...

    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a tool; a decorator, with or without options (see `ToolOptions`). Returns the `Tool`, callable.

        A tool declared without `effect` is `external`: the class that assumes nothing.
        """

        def register(body: Callable[..., Any]) -> Tool:
            tool = make_tool(body, ToolOptions(**options))
            if tool.name in self.tools:
                raise Misuse(f"a tool named {tool.name!r} is registered already; give this one a name of its own")
            self.tools[tool.name] = tool
            return tool

        return register if function is None else register(function)

    def resolver(self, source_prefix: str, f: Callable[[str], str]) -> None:
        """Register who says whether a source is `in_force`, `withdrawn` or `unknown`."""
        self.resolvers[source_prefix] = f

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, agent: Callable[..., Any], id: str, *, task: Any = None, **options: Any) -> Outcome:  # noqa: A002
        """Start, resume or report the trajectory `id`, in this thread.

        An unknown id starts (`task` required); an open one resumes at its open turn; an ended one answers with its
        recorded outcome. Options: model, sampling, prompt_version, budget, subjects, principal, workspace;
        for a resume that a person decided also close_turn, accept_loss and because.
        Raises `Conflict`, `Busy`, `UnknownTrajectory`, `ResumeRefused`, `Diverged`, and what the agent raised: the
        trajectory then stays open. Raises `Misuse` at once inside a running event loop: use `await journal.arun`.
        """
        if _in_loop():
            raise Misuse("journal.run would block the running event loop; use 'await journal.arun(...)'")
        if _is_async(agent):
            raise Misuse("journal.run takes a plain agent; this one is 'async def': use 'await journal.arun(...)'")
        agent = _caught(agent, options)
        session, order, more = self._start(agent, id, task, options)
        perform = driver_sync.performer(self._env)
        spawn = partial(self._spawn, session, self.run)
        return driver_sync.run(session, order, agent, lambda s, p: driver_sync.Trajectory(s, p, spawn, **more), perform)

    async def arun(self, agent: Callable[..., Any], id: str, *, task: Any = None, **options: Any) -> Outcome:  # noqa: A002
        """The same for `async def` agents; the loop never blocks."""
        if not _is_async(agent):
            raise Misuse("journal.arun takes an 'async def' agent; a plain one runs with journal.run, in a thread")
        agent = _caught(agent, options)
        session, order, more = await asyncio.to_thread(self._start, agent, id, task, options)
        spawn = partial(self._spawn, session, self.arun)
        return await driver_async.run(
            session, order, agent, lambda s, p: driver_async.Trajectory(s, p, spawn, **more), driver_async.performer()
        )

    def _start(
        self, agent: Callable[..., Any], trajectory_id: str, task: Any, options: Mapping[str, Any]
    ) -> tuple[Session, Order, dict[str, Any]]:
        check_trajectory_id(trajectory_id)
        if self._draining:
            raise Busy(f"trajectory {trajectory_id!r}: this process is to end and starts nothing new; run it elsewhere")
        known = {
            "model", "sampling", "prompt_version", "budget", "subjects", "principal", "workspace", "parent",
            "accept_loss", "close_turn", "roll_back", "because", "recover_from", "ancestors",
        }  # fmt: skip
        unknown = set(options) - known
        if unknown:
            raise Misuse(f"journal.run: no option is named {', '.join(sorted(unknown))}")
        self._check_workspace(options.get("workspace"), trajectory_id)
        decided = any(options.get(name) for name in ("accept_loss", "close_turn", "roll_back"))
        if decided and not str(options.get("because") or "").strip():
            raise Misuse("journal.run: accept_loss, close_turn and roll_back are recorded with a reason: because=TEXT")
        model = options.get("model")
        bearer = principal_of(options.get("principal", self.principal))
        order = Order(
            task=task,
            agent=f"{agent.__module__}:{agent.__qualname__}",
            model=getattr(model, "name", None) or "unknown",
            model_version=str(getattr(model, "version", "")) if model is not None else "",
            sampling=options.get("sampling"),
            prompt_version=options.get("prompt_version") or "",
            tool_schema_version=declared_schema_hash(self.tools),
            budget=options.get("budget") or {},
            subjects=tuple(options.get("subjects", ())),
            principal=bearer.id,
            bearer=bearer,
            workspace=options.get("workspace"),
            parent=options.get("parent"),
            accept_loss=bool(options.get("accept_loss")),
            close_turn=bool(options.get("close_turn")),
            roll_back=bool(options.get("roll_back")),
            recovering=options.get("recover_from") is not None,
            because=options.get("because") or "",
            started=self._declared,
        )
        session = Session(
            self._ports_with(options.get("recover_from")),
            Setup(
                tools=self.tools, policy=self.policy, resolvers=self.resolvers, replicated=frozenset(self._replicate)
            ),
            self.tenant,
            trajectory_id,
        )
        session.ancestors = tuple(options.get("ancestors", ()))
        return session, order, {"model": model, "parameters": options.get("sampling")}

    def _ports_with(self, source: Any) -> Ports:
        """The parts, and behind them the place that a lost root is brought back from."""
        if source is None:
            return self.ports
        from .replicas.recover_from import RecoveredBlobs, RecoveredLog

        ports = self.ports
        blobs = RecoveredBlobs(ports.blobs, source)
        return replace(ports, log=RecoveredLog(ports.log, source, blobs), blobs=blobs)

    def _declared(self) -> dict[str, Any]:
        tools = {
            name: ToolDeclaration(effect=tool.effect, version=tool.options.version, schema_hash=tool.schema_hash)
            for name, tool in self.tools.items()
        }
        return {
            "tools": tools, "policy_version": policy_version(self.policy), "runtime": "trajlake",
            "replicated": self._replicate,
        }  # fmt: skip

    def _check_workspace(self, workspace: Any, trajectory_id: str) -> None:
        untracked = getattr(self.policy, "workspace", "") == "untracked"
        if workspace is not None or untracked or all(tool.effect != "local" for tool in self.tools.values()):
            return
        record = self.ports.leases.read(self.tenant, trajectory_id)
        found = canonical(self.ports.log.read(self.tenant, trajectory_id, record).events)
        if all(event.type != "TaskEnded" for event in found.events):  # one that has ended touches no file
            raise Misuse(
                "a 'local' tool is registered: give journal.run workspace=PATH (resume: --workspace PATH), the folder "
                "it changes (or a policy with workspace = 'untracked')"
            )

    def _spawn(
        self, parent: Session, run: Callable[..., Any], agent: Any, child_id: str, task: Any, options: Any
    ) -> Any:
        named = ParentAction(tenant=parent.tenant, trajectory_id=parent.trajectory_id)
        above = (*parent.ancestors, parent.trajectory_id)
        return run(agent, child_id, task=task, parent=named, ancestors=above, **options)

    # -- mail ------------------------------------------------------------------------------------------------------

    def postman(self, actor: str = "", known_by: str = "") -> Postman:
        """Return who posts mail in the name of `actor` (default: the journal's principal)."""
        return Postman(self._mail, self.tenant, actor=actor or self.principal or "", known_by=known_by, env=self._env)

    def approve(self, trajectory_id: str, approval: str, because: str = "", *, actor: str = "") -> MailItem:
        """Grant an approval, by its id or its action's. Like all mail it is durable on return, and read by a worker."""
        return self.postman(actor).approve(trajectory_id, approval, because)

    def deny(self, trajectory_id: str, approval: str, because: str = "", *, actor: str = "") -> MailItem:
        """Deny an approval."""
        return self.postman(actor).deny(trajectory_id, approval, because)

    def cancel(self, trajectory_id: str, because: str = "", *, actor: str = "") -> MailItem:
        """Ask a trajectory to stop at its next operation."""
        return self.postman(actor).cancel(trajectory_id, because)

    def settle(
        self, trajectory_id: str, action: str, *, executed: bool, because: str, evidence: Any = None,
        output: Any = UNSET, actor: str = "",
    ) -> MailItem:  # fmt: skip
        """Say whether an effect in doubt happened, what shows it, and its output if it is known."""
        return self.postman(actor).settle(
            trajectory_id, action, executed=executed, because=because, evidence=evidence, output=output
        )

    def deliver(
        self, trajectory_id: str, action: str, result: Any = None, *, error: str | None = None, actor: str = ""
    ) -> MailItem:
        """Hand in the result of a call that no worker waits for, by action id or the provider's."""
        return self.postman(actor).deliver(trajectory_id, action, result, error=error)

    def steer(self, trajectory_id: str, text: str, *, actor: str = "") -> MailItem:
        """Add a user message where the next turn begins."""
        return self.postman(actor).steer(trajectory_id, text)

    # -- parts -----------------------------------------------------------------------------------------------------

    @property
    def ports(self) -> Ports:
        """The parts the core works with; the first use starts them."""
        with self._lock:
            if self._closed:
                raise Misuse("the journal is closed: open it again")
            if self._ports is None:
                self._ports, self._pid = self._make_ports(), self._env.pid()
            elif self._pid != self._env.pid():
                raise Misuse("the journal belongs to the parent process: open it again in the child")
            return self._ports

    @property
    def ports_for_reading(self) -> Ports:
        """The parts a replay needs: blobs and clock. No writer is claimed and no lease store asked."""
        if self._ports is not None:
            return self._ports
        env = self._env
        log, leases = RootLog(self.root), lease_store(self.root)
        return Ports(
            env=env, log=log, blobs=self.root.blobs, leases=leases, keeper=LeaseKeeper(leases, env=env),
            arbiter=arbiter(self.root), mail=self._mail, worker="", host="",
        )  # fmt: skip

    def _make_ports(self) -> Ports:
        env = self._env
        leases = self._leases if self._leases is not None else lease_store(self.root)
        self._log = RootLog(self.root, self._options)
        self._keeper = LeaseKeeper(leases, env=env)
        log: Log = self._log
        blobs: Blobs = self.root.blobs
        if self._replica is not None:
            self._replication = Replication(self._replica, self.root.blobs.get, env=env)
            log, blobs = ReplicatedLog(log, self._replica, self._replication), ReplicatedBlobs(blobs, self._replica)
        worker = f"{env.host()}:{env.pid()}:{env.random_bytes(4).hex()}"
        return Ports(
            env=env, log=log, blobs=blobs, leases=leases, keeper=self._keeper,
            arbiter=arbiter(self.root), mail=self._mail, worker=worker, host=env.host(),
            checkpoints=CheckpointFiles(env, self.root.path), own_paths=(self.root.path,),
            draining=lambda: self._draining,
        )  # fmt: skip

    def drain(self) -> None:
        """The process is to end: each trajectory is let go of where its turn ends, checkpointed; nothing new starts.

        Safe to call from a signal handler. `run` returns a parked outcome whose question is how to go on elsewhere.
        """
        self._draining = True

    def close(self) -> None:
        """Write what is queued, seal, and free the writer directory. Runs at exit by itself; safe to call twice."""
        with self._lock:
            self._closed = True
            if self._keeper is not None:
                self._keeper.close()
            if self._log is not None:
                self._log.close()
            if self._replication is not None:
                self._replication.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _caught(agent: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The agent, with its own reads of clock and chance recorded where the option `intercept` asks for it."""
    if not options.pop("intercept", False):
        return agent
    from .replaying.intercept import intercepted

    return intercepted(agent)


def _is_async(agent: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(getattr(agent, "__call__", None))  # noqa: B004


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
