"""Verbs that run agents: resume, recover.

AGENT is `module:function`; its module's one Journal gives tools, policy and stores.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.drain import GRACE, GRACE_S, drain_on_sigterm
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, open_root, print_json, settings_of
from trajlake.runtime.named_module import imported

if TYPE_CHECKING:
    from trajlake.runtime.agent.outcome import Outcome
    from trajlake.runtime.journal import Journal
    from trajlake.runtime.settings import Settings

AGENT = Annotated[str | None, typer.Argument(metavar="[AGENT]", help="module:function; default: the recorded one.")]
OBJECT = Annotated[str | None, typer.Option("--journal-object", metavar="NAME", help="Which Journal of the module.")]
MODEL = Annotated[str | None, typer.Option("--model-object", metavar="NAME", help="Which model of the module.")]


@dataclass(frozen=True)
class Runner:
    """An agent with the journal and the model of its module."""

    agent: Callable[..., Any]
    journal: Journal
    model: Any = None

    def run(self, trajectory_id: str, **options: Any) -> Outcome:
        """Run it, plain or under asyncio as it is written."""
        if inspect.iscoroutinefunction(self.agent):
            return asyncio.run(self.journal.arun(self.agent, trajectory_id, model=self.model, **options))
        return self.journal.run(self.agent, trajectory_id, model=self.model, **options)


def resume(
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    agent: AGENT = None,
    journal: JOURNAL = None,
    tenant: TENANT = None,
    journal_object: OBJECT = None,
    model_object: MODEL = None,
    workspace: Annotated[str | None, typer.Option("--workspace", metavar="PATH", help="The folder it changes.")] = None,
    close_turn: Annotated[bool, typer.Option("--close-turn", help="Leave the open turn; go on with the next.")] = False,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="Go on though events are missing.")] = False,
    roll_back: Annotated[bool, typer.Option("--roll-back", help="Redo the turns whose files are lost.")] = False,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; it is recorded.")] = "",
    grace_s: GRACE = GRACE_S,
    as_json: JSON = False,
) -> int:
    """Go on with a trajectory at its open turn. Exit code 1 when it failed, was cancelled, or waits for somebody."""
    if (close_turn or accept_loss or roll_back) and not because.strip():
        raise UserError("--close-turn, --accept-loss and --roll-back are recorded with a reason: give --because TEXT")
    name = agent or recorded_agent(journal, tenant, trajectory_id)
    runner = runner_of(name, journal, journal_object, model_object)
    drain_on_sigterm(runner.journal.drain, grace_s)
    with runner.journal:
        outcome = runner.run(
            trajectory_id, workspace=workspace, close_turn=close_turn, accept_loss=accept_loss, roll_back=roll_back,
            because=because,
        )  # fmt: skip
    show(trajectory_id, outcome, as_json)
    return 0 if outcome.status == "completed" else 1


def recover(
    agent: AGENT = None,
    workspace: Annotated[
        str | None, typer.Option("--workspace", metavar="PATH", help="The folder they change.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking.")] = False,
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often --watch looks.")] = 5.0,
    grace_s: GRACE = GRACE_S,
    source_url: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="First bring them back from a landing or replica.")
    ] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; may repeat.")] = None,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="Go on though events are missing.")] = False,
    because: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why; it is recorded.")] = "",
    journal: JOURNAL = None,
    tenant: TENANT = None,
    journal_object: OBJECT = None,
    model_object: MODEL = None,
    as_json: JSON = False,
) -> int:
    """Resume every open trajectory that nobody works on. Exit code 1 when some could not be brought on.

    SIGTERM ends it where the turn in hand ends: checkpointed, its lease released.
    """
    if accept_loss and not because.strip():
        raise UserError("--accept-loss is recorded with a reason: give --because TEXT")
    root_path = settings_of(journal, tenant).journal
    state = Sweep(agent, journal, journal_object, model_object, as_json, workspace)
    if source_url is not None:
        if agent is not None:
            state.runner(agent)  # its module opens the journal, and so names the root's stores
        state.back = bring_back(source_url, settings_of(journal, tenant), ids)
    state.only, state.options = ids, {"accept_loss": accept_loss, "because": because}
    drain_on_sigterm(state.drain, grace_s)
    while True:
        state.sweep(root_path, tenant)
        if not watch or state.drained.is_set():
            state.close()
            return 1 if state.stuck else 0
        state.drained.wait(every_s)


@dataclass
class Sweep:
    """One look after another at all trajectories of a root."""

    agent: str | None
    journal: str | None
    journal_object: str | None
    model_object: str | None
    as_json: bool
    workspace: str | None = None
    stuck: dict[str, str] = field(default_factory=dict)
    runners: dict[str, Runner] = field(default_factory=dict)
    drained: threading.Event = field(default_factory=threading.Event)
    back: Lost | None = None
    only: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def drain(self) -> None:
        """The process is to end: nothing more is resumed, and what runs is let go of where its turn ends."""
        self.drained.set()
        for runner in self.runners.values():
            runner.journal.drain()

    def close(self) -> None:
        """Close every journal that was opened."""
        for runner in self.runners.values():
            runner.journal.close()

    def sweep(self, root_path: str, tenant: str | None) -> None:
        """Try each open trajectory that is free; one that waits for a person is tried again when it has mail."""
        from trajlake.runtime.agent.errors import AgentError
        from trajlake.runtime.stores import mail_store

        mail = mail_store(open_root(root_path))
        wanted = list(open_trajectories(self.journal, tenant))
        if self.back is not None:
            wanted = sorted({*wanted, *self.back.trajectories})
        for wanted_tenant, trajectory_id in wanted:
            if self.only is not None and trajectory_id not in self.only:
                continue
            if self.drained.is_set():
                return
            if trajectory_id in self.stuck and not mail.waiting(wanted_tenant, trajectory_id):
                continue
            try:
                source = self.back.source if self.back is not None else None
                name = self.agent or recorded_agent(self.journal, tenant, trajectory_id, source)
                outcome = self.runner(name).run(
                    trajectory_id, workspace=self.workspace, recover_from=source, **self.options
                )
            except (AgentError, UserError) as error:
                self.stuck[trajectory_id] = str(error)
                print(f"trajlake: {trajectory_id}: {error}", file=sys.stderr)
                continue
            self.stuck.pop(trajectory_id, None)
            if outcome.status == "parked":
                self.stuck[trajectory_id] = "parked"
            show(trajectory_id, outcome, self.as_json)

    def runner(self, name: str) -> Runner:
        """The agent of that name, imported once."""
        if name not in self.runners:
            self.runners[name] = runner_of(name, self.journal, self.journal_object, self.model_object)
        return self.runners[name]


def open_trajectories(journal: str | None, tenant: str | None) -> Iterator[tuple[str, str]]:
    """(tenant, id) of every trajectory of the tenant that nobody holds and that did not end."""
    from trajlake.runtime.replicas.recover_from import is_open
    from trajlake.runtime.root_log import RootLog
    from trajlake.runtime.stores import lease_store

    wanted = settings_of(journal, tenant).tenant
    root = open_root(settings_of(journal, tenant).journal)
    log = RootLog(root)
    for record in sorted(lease_store(root).records(), key=lambda one: one.trajectory_id):
        if record.tenant != wanted or record.holder is not None:
            continue
        if is_open(log.read(record.tenant, record.trajectory_id, record).events):
            yield record.tenant, record.trajectory_id


@dataclass(frozen=True)
class Lost:
    """Where lost trajectories are brought back from, and which of them."""

    source: Any
    trajectories: frozenset[tuple[str, str]]


def bring_back(url: str, settings: Settings, ids: list[str] | None) -> Lost:
    """Open `--from`, and make sure that this root has an arbiter in common with the one that was lost."""
    from trajlake.runtime.env import REAL_ENV
    from trajlake.runtime.root import Root
    from trajlake.runtime.stores import source_at

    named = settings.origins["landing"] != "default"
    root = Root.open(settings.journal, stores={"landing": settings.landing} if named else None)
    if not {"landing", "replica"} & set(root.facts.stores):
        raise UserError(
            f"{root.path}: names neither landing nor replica, so it has no arbiter in common with the root that was "
            "lost: set landing (trajlake.toml, TRAJLAKE_LANDING), or open it with Journal.open(replica=URL)"
        )
    source = source_at(url, REAL_ENV)
    names = ids if ids is not None else source.open_trajectories(settings.tenant)
    return Lost(source, frozenset((settings.tenant, name) for name in names))


def recorded_agent(journal: str | None, tenant: str | None, trajectory_id: str, source: Any = None) -> str:
    """Return the `module:function` that `TaskStarted` recorded."""
    from trajlake.runtime.root_log import RootLog
    from trajlake.runtime.stores import lease_store

    root = open_root(settings_of(journal, tenant).journal)
    wanted = settings_of(journal, tenant).tenant
    record = lease_store(root).read(wanted, trajectory_id)
    events = list(RootLog(root).read(wanted, trajectory_id, record).events)
    if source is not None:
        events += source.events(wanted, trajectory_id)
    first = next((event for event in events if event.type == "TaskStarted"), None)
    if first is None:
        raise UserError(f"trajectory {trajectory_id!r}: nothing is recorded in {root.path}; check id and --journal")
    name: str = first.body.agent
    if not name or name.startswith("__main__:"):
        raise UserError(f"trajectory {trajectory_id!r}: its agent {name or '?'} cannot be imported; name it: AGENT")
    return name


def runner_of(name: str, journal: str | None, journal_object: str | None, model_object: str | None) -> Runner:
    """Import `module:function` and what it needs from the same module."""
    from trajlake.runtime.journal import Journal

    module, agent = imported(name, "agent")
    found: Journal = _one_of(
        module, journal_object, lambda one: isinstance(one, Journal), "Journal", "--journal-object"
    )
    root_path = settings_of(journal).journal
    if journal is not None and open_root(root_path).path != found.root.path:
        raise UserError(f"agent {name!r}: its journal is {found.root.path}, not {root_path}; leave --journal out")
    model = None
    if model_object is not None or any(_is_model(value) for value in vars(module).values()):
        model = _one_of(module, model_object, _is_model, "model", "--model-object")
    return Runner(agent, found, model)


def _is_model(value: Any) -> bool:
    named = ("name", "version", "format", "request", "send")
    return not inspect.ismodule(value) and not inspect.isclass(value) and all(hasattr(value, one) for one in named)


def _one_of(module: Any, name: str | None, wanted: Callable[[Any], bool], what: str, option: str) -> Any:
    if name is not None:
        value = getattr(module, name, None)
        if not wanted(value):
            raise UserError(f"{module.__name__}.{name} is no {what}")
        return value
    found = {id(value): (key, value) for key, value in vars(module).items() if wanted(value)}
    if len(found) != 1:
        names = ", ".join(sorted(key for key, _ in found.values())) or "none"
        raise UserError(f"module {module.__name__} has {len(found)} {what} objects ({names}): name one with {option}")
    return next(iter(found.values()))[1]


def show(trajectory_id: str, outcome: Outcome, as_json: bool) -> None:
    """Print one outcome."""
    if as_json:
        waiting = [
            {"kind": one.kind, "action_id": one.action_id, "tool": one.tool, "question": one.question}
            for one in outcome.waiting_for
        ]
        print_json({"id": trajectory_id, "status": outcome.status, "result": outcome.result, "waiting_for": waiting})
        return
    print(f"{trajectory_id}: {outcome.status}" + (f": {outcome.result}" if outcome.result is not None else ""))
    for one in outcome.waiting_for:
        print(f"  {one.question}")
