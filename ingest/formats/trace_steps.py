"""Traces become trajectories: spans or observations, read as steps, in the order they began.

One trajectory per trace. Where several agents of a trace call models, the outermost one is the trace's own and
each of the others is a trajectory of its own (`<trace>/<span>`) that names the trace's as its parent. A tool's
answer as the next prompt shows it is what the model was given; the tool's own record of it is the full output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from trajlake.schemas.events import ImportSource, ParentAction, Usage

from .build import Proposed, Trajectory, first_record_hash, label, record_tree, session_id
from .chat_shapes import Said, canonical_arguments
from .contract import Item, Loss
from .prompts import PromptLog

StepKind = Literal["model", "tool", "agent", "other"]


class Step(NamedTuple):
    """One span of a trace. `details` is what it says beside prompt, reply and answer: kept raw, "" for nothing."""

    kind: StepKind
    id: str
    parent: str
    name: str
    start: int
    end: int | None
    place: str
    raw: str
    label: str
    details: str = ""
    prompt: Sequence[Said] = ()
    reply: Said | None = None
    reply_raw: str = ""
    format: str = ""
    usage: Usage | None = None
    model: str = ""
    response_id: str = ""
    stop_reason: str | None = None
    cost: str = ""
    error: str = ""
    tools: Any = None
    parameters: Any = None
    call_id: str = ""
    arguments: str | None = None
    output: Any = None
    failed: bool = False
    task: Any = None
    ended: bool = False


class Trace:
    """The trajectories of one trace; `build` once, `late` for spans that come after that."""

    def __init__(
        self, format_name: str, trace_id: str, source_name: str, tenant: str, emit: Callable[[Item], None], loss: Loss
    ) -> None:
        self.format, self.trace_id, self.tenant = format_name, trace_id, tenant
        self.source_name, self.emit, self.loss = source_name, emit, loss
        self.main: Trajectory | None = None

    def build(self, steps: Sequence[Step]) -> Trajectory:
        """Emit the whole trace."""
        ordered = sorted(steps, key=lambda step: step.start)
        owners = _owners(ordered)
        delivered = {
            said.call_id: said for step in ordered for said in step.prompt if said.role == "tool" and said.call_id
        }
        # Every trajectory is opened before the first event is given: a hostile id refuses the trace as a whole.
        names = list(dict.fromkeys(["", *(owners.get(step.id, "") for step in ordered)]))
        runs = {
            name: self._open(name, [one for one in ordered if not name or owners.get(one.id, "") == name])
            for name in names
        }
        for step in ordered:
            runs[owners.get(step.id, "")].step(step, delivered)
        main = runs[""]
        for run in runs.values():
            run.trajectory.settle()
        self.main = main.trajectory
        return main.trajectory

    def late(self, step: Step) -> None:
        """A span of a trace that was already emitted: kept raw."""
        assert self.main is not None
        self.main.keep(f"late {step.label}", step.raw, at=step.start, place=step.place)
        self.loss.keep(f"late {step.label}")

    def _open(self, owner: str, steps: Sequence[Step]) -> _Agent:
        session = f"{self.trace_id}/{owner}" if owner else self.trace_id
        first = steps[0]
        parent = None
        if owner:
            parent = ParentAction(tenant=self.tenant, trajectory_id=f"{self.format}/{self.trace_id}")
        trajectory = Trajectory(
            session_id(self.format, session, self.source_name, first.place),
            ImportSource(
                format=self.format,
                session=session,
                first_record_hash=first_record_hash(session.encode("utf-8", "surrogatepass")),
            ),
            self.emit,
            self.loss,
            agent=next((step.name for step in steps if step.kind == "agent"), ""),
            parent=parent,
        )
        trajectory.place = first.place
        trajectory.model = next((step.model for step in steps if step.kind == "model" and step.model), "")
        trajectory.last_at = first.start
        trajectory.set_task(next((step.task for step in steps if step.task is not None), None))
        return _Agent(trajectory, self.loss)


class _Agent:
    """One trajectory of a trace."""

    def __init__(self, trajectory: Trajectory, loss: Loss) -> None:
        self.trajectory, self.loss = trajectory, loss
        self.log = PromptLog(trajectory)
        self.replies: set[str] = set()

    def step(self, step: Step, delivered: dict[str, Said]) -> None:
        """Feed one step."""
        if not self._mapped(step, delivered):
            self.trajectory.keep(step.label, step.raw, at=step.start, place=step.place)
            self.loss.keep(step.label)
            return
        self.loss.map(step.label)
        if step.details:
            self.trajectory.keep(f"{step.label} (details)", step.details, at=step.end, place=step.place)

    def _mapped(self, step: Step, delivered: dict[str, Said]) -> bool:
        if step.kind == "model":
            return step.reply is not None and self._model(step)
        return step.kind == "tool" and self._tool(step, delivered)

    def _model(self, step: Step) -> bool:
        """One model call. A reply id that was counted already (a wrapper's span repeats it) is kept raw."""
        if step.response_id and step.response_id in self.replies:
            self.loss.note("reply repeated under its id: counted once")
            return False
        self.replies.add(step.response_id)
        if step.tools:
            self.trajectory.set_head("tools", step.tools)
        if step.parameters:
            self.trajectory.set_head("parameters", step.parameters)
            if self.trajectory.sampling is None and not self.trajectory.settled:
                self.trajectory.sampling = record_tree(step.parameters)
        self.log.show(step.prompt, step.start, step.place)
        assert step.reply is not None
        self.log.reply(
            step.reply,
            step.reply_raw,
            at=step.end if step.end is not None else step.start,
            place=step.place,
            format=step.format,
            usage=step.usage,
            model=step.model,
            response_id=step.response_id,
            stop_reason=step.stop_reason,
            duration_ms=None if step.end is None else (step.end - step.start) / 1000,
            cost={"usd": step.cost} if step.cost else {},
            error=label(step.error),
            status="error" if step.error else "kept",
        )
        return True

    def _tool(self, step: Step, delivered: dict[str, Said]) -> bool:
        call = self._call_of(step)
        if call is None or not step.ended:
            return False
        shown = delivered.get(call.provider_id) if call.provider_id else None
        output = shown.output if shown is not None else step.output
        said = shown or Said(
            "tool",
            {"role": "tool", "tool_call_id": call.provider_id, "content": output},
            None, (), call.provider_id, output, step.failed,
        )  # fmt: skip
        return self.log.answer(
            said,
            step.end if step.end is not None else step.start,
            step.place,
            call=call,
            status="error" if step.failed else "ok",
            full_output=None if shown is None or shown.output == step.output or step.output is None else step.output,
            error=step.error or None,
            duration_ms=None if step.end is None else (step.end - step.start) / 1000,
        )

    def _call_of(self, step: Step) -> Proposed | None:
        """Return the open call that a tool's span belongs to: by id, else by name and arguments, else by name."""
        if step.call_id:
            return self.trajectory.find_call(step.call_id)
        named = [call for call in self.trajectory.open_calls() if call.tool == step.name]
        same = [call for call in named if canonical_arguments(call.arguments) == canonical_arguments(step.arguments)]
        return next(iter(same or named), None)


def _owners(steps: Sequence[Step]) -> dict[str, str]:
    """Return which agent's trajectory each step belongs to ("" for the trace's own)."""
    by_id = {step.id: step for step in steps}
    nearest: dict[str, str] = {}
    for step in steps:
        at, agent, hops = step, "", 0
        if step.kind == "agent":
            agent = step.id
        while not agent and at.parent in by_id and hops < len(steps):
            at, hops = by_id[at.parent], hops + 1
            agent = at.id if at.kind == "agent" else ""
        nearest[step.id] = agent
    calling = [nearest[step.id] for step in steps if step.kind == "model"]
    main = {"", *calling[:1]}
    own = {agent for agent in calling if agent not in main}
    return {step: (agent if agent in own else "") for step, agent in nearest.items()}
