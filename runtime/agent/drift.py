"""What differs from the log at a resume, and what is done about it: each finding is an event. Source: design/agent.md.

| what | component | default | else by `policy.on_drift` |
|---|---|---|---|
| context | the first item (or the head) that cannot be rebuilt as recorded | refuse | switch |
| model | model, sampling | switch | pin (the policy brings it back), refuse |
| prompt | prompt_version; recorded messages stand in any case | switch | pin, refuse |
| tool_schema | tools, and each tool by name | switch | pin (`tool_pins`), refuse |
| tool_schema | a tool with an intent in doubt that would be sent or probed again | refuse, always | |
| contract | policy: the one in force decides from now on | switch | |
| contract | budget, principal: the recorded one stands until it is revised | recorded | |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import DriftDetected, TaskStarted
from trajlake.schemas.state.budget import normal

from .authorize import policy_version
from .enter import Order, refuse
from .errors import ResumeRefused
from .requests import Steps
from .session import Session
from .settle import in_doubt
from .tool_pins import pinned_tools

_UNSAID = object()


@dataclass(frozen=True, slots=True)
class Finding:
    """One component that may differ: as recorded last, and as it is now."""

    what: str
    component: str
    old: Any
    new: Any
    choice: str


def check_context(s: Session) -> Steps:
    """Refuse, or switch where the policy says so, when a recorded context cannot be rebuilt with its hash."""
    found = s.view.context.drifted
    if found is None:
        return
    component = s.view.context.drifted_at
    if _latest(s, "context", component, None) is not None:
        return
    built: Any = s.event_at(found).body
    choice = "switch" if s.rules.on_drift.get("context") == "switch" else "refuse"
    yield from _record(s, Finding("context", component, built.context_hash, "", choice))
    if choice == "refuse":
        why = f"the context of event {found} cannot be rebuilt as recorded: {component} differs"
        yield from refuse(s, ResumeRefused("context", why))


def check_intents(s: Session) -> Steps:
    """Refuse when the arguments of an unsettled intent, sent or probed again, would mean something else now."""
    for action in in_doubt(s):
        tool = s.setup.tools.get(action.tool)
        if tool is None or action.intent is None or action.intent.tool_version != tool.options.version:
            continue  # goes to a person anyway
        asks = tool.honours_key or tool.options.probe is not None or tool.effect == "read"
        old = _schema_of(s, action.tool)
        if asks and old and old != tool.schema_hash:
            yield from _record(s, Finding("tool_schema", action.tool, old, tool.schema_hash, "refuse"))
            why = f"{action.tool} takes other arguments than {action.action_id}, which is in doubt, was sent with"
            yield from refuse(s, ResumeRefused("tool_schema", f"{why}; run the old code, or settle it by hand"))


def note_drift(s: Session, order: Order) -> Steps:
    """Record what differs, and refuse where the policy says so. What is new is in force from the next turn on."""
    switched: int | None = None
    for found in _compared(s, order):
        if _latest(s, found.what, found.component, found.old) == found.new:
            continue
        found = _with_choice(s, found)
        if found.choice == "switch" and found.what != "contract" and found.component not in s.setup.tools:
            switched = s.view.system_no + 1
        yield from _record(s, found, switched if found.choice == "switch" else None)
        if found.choice == "refuse":
            why = f"{found.component} was {found.old!r}, is {found.new!r}, and the policy takes no other"
            yield from refuse(s, ResumeRefused("drift", why))


def _compared(s: Session, order: Order) -> Iterator[Finding]:
    started: TaskStarted = s.events[0].body
    model = order.model if order.model != "unknown" else started.model
    version = order.model_version if order.model != "unknown" and order.model_version else started.model_version
    if model == started.model and version != started.model_version and started.model_version:
        yield Finding("model", "model_version", started.model_version, version, "")
    yield Finding("model", "model", started.model, model, "")
    if order.sampling is not None:
        yield Finding("model", "sampling", started.sampling, values.to_tree(order.sampling), "")
    prompt = order.prompt_version or started.prompt_version
    yield Finding("prompt", "prompt_version", started.prompt_version, prompt, "")
    yield Finding("tool_schema", "tools", started.tool_schema_version, order.tool_schema_version, "")
    for name, tool in s.setup.tools.items():
        if old := _schema_of(s, name):
            yield Finding("tool_schema", name, old, tool.schema_hash, "pin" if "tools" in s.pins else "switch")
    yield Finding("contract", "policy", started.policy_version, policy_version(s.setup.policy), "switch")
    budget = {unit: normal(str(amount)) for unit, amount in order.budget.items()}
    yield Finding("contract", "budget", started.budget, budget or started.budget, "recorded")
    if order.principal is not None:
        yield Finding("contract", "principal", started.principal, order.principal, "recorded")


def _with_choice(s: Session, found: Finding) -> Finding:
    choice = found.choice or s.rules.on_drift.get(found.what, "switch")
    old = _latest(s, found.what, found.component, found.old)
    if choice == "pin" and not _pinned(s, found):
        choice = "switch"
    return Finding(found.what, found.component, old, found.new, choice)


def _pinned(s: Session, found: Finding) -> bool:
    """Bring back what is recorded, where that can be done."""
    started: TaskStarted = s.events[0].body
    if found.component == "sampling":
        s.pins["sampling"] = started.sampling
        return True
    if found.what == "tool_schema":
        if "tools" not in s.pins and (pins := pinned_tools(s, reversed(s.events))) is not None:
            s.pins["tools"] = pins
        return "tools" in s.pins
    if found.what == "model" and s.rules.pinned_model is not None:
        s.pins["model"] = s.rules.pinned_model(started.model, started.model_version)
    return found.what == "prompt" or s.pins.get("model") is not None


def _schema_of(s: Session, tool: str) -> str:
    """The schema hash of a tool as the log last knew it, "" if it never did."""
    started: TaskStarted = s.events[0].body
    declared = started.tools.get(tool)
    return str(_latest(s, "tool_schema", tool, declared.schema_hash if declared is not None else ""))


def _latest(s: Session, what: str, component: str, first: Any) -> Any:
    """What the log says was last in force of a component: a pin or a refusal changed nothing."""
    for event in reversed(s.events):
        if _is_drift(event, what, component) and event.body.choice in ("switch", "recorded"):
            return event.body.new
    return first


def _is_drift(event: Event, what: str, component: str) -> bool:
    return event.type == "DriftDetected" and (event.body.what, event.body.component) == (what, component)


def _record(s: Session, found: Finding, system_no: int | None = None) -> Steps:
    raised = s.view.system_no + 1 if found.what == "context" and found.choice == "switch" else s.view.system_no
    yield from s.record(
        DriftDetected(
            what=found.what,  # type: ignore[arg-type]
            component=found.component, old=found.old, new=found.new,
            choice=found.choice,  # type: ignore[arg-type]
            system_no=raised if system_no is None else system_no,
        )
    )  # fmt: skip
