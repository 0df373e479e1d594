"""Tools: a function, its effect class, and what a body may raise or answer. Source: design/agent.md.

A body raises `NotExecuted` when nothing left the host and `ToolError` when it ran and failed. Any other exception,
timeout or interrupt is an error for `read` and `local` tools and *unknown* for `idempotent` and `external` ones:
no result is written, settling starts.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, get_args

import msgspec

from trajlake.schemas.events import Effect

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_MISSING: Final = inspect.Parameter.empty


class NotExecuted(Exception):
    """Raised by a tool body: nothing left the host, the effect did not happen."""


class ToolError(Exception):
    """Raised by a tool body: it ran and failed; its text is what the model is given."""


class InvalidArguments(ValueError):
    """A call's arguments are not JSON, or do not fit the tool: it is refused, no intent is made."""


@dataclass(frozen=True, slots=True)
class Retry:
    """`n` more attempts after the first, `wait_s` before the first of them, doubled each time up to `wait_max_s`."""

    n: int = 0
    wait_s: float = 0.0
    wait_max_s: float = 30.0

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 1)."""
        return min(self.wait_s * 2.0 ** (attempt - 1), self.wait_max_s)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a tool body, probe, precheck, policy or gateway sees it.

    `key` is the idempotency key to send downstream: the same for every attempt. `deadline` is seconds since the
    epoch (None outside a dispatch). `arguments` are the values passed to the tool.
    """

    tool: str
    key: str
    token: int
    attempt: int
    tenant: str
    trajectory_id: str
    action_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_hash: str = ""
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Executed:
    """A probe's answer: the effect happened; its output if it is known, and what shows it."""

    output: Any = msgspec.UNSET
    evidence: Any = None


@dataclass(frozen=True, slots=True)
class CutText:
    """A tool's text of which the model is given the first `head` and last `tail` characters; the log keeps all."""

    full: str
    head: int
    tail: int = 0

    @property
    def delivered(self) -> str:
        """What the model is given."""
        gone = len(self.full) - self.head - self.tail
        end = self.full[len(self.full) - self.tail :] if self.tail else ""
        return f"{self.full[: self.head]}[{gone} of {len(self.full)} characters cut]{end}"


def cut(text: str, *, head: int, tail: int = 0) -> CutText | str:
    """Return what a tool body returns for a long text: cut for the model, whole in the log. Short texts stay as is."""
    if head < 0 or tail < 0:
        raise ValueError(f"cut: head {head} and tail {tail} must be at least 0")
    return text if len(text) <= head + tail else CutText(text, head, tail)


class _Verdict:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


NOT_EXECUTED: Final = _Verdict("NOT_EXECUTED")
"""A probe's answer: the effect did not happen (believed only after `timeout_s` + `settle_after_s`)."""
UNKNOWN: Final = _Verdict("UNKNOWN")
"""A probe's answer: cannot say."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A precheck's answer: the world as it is now does not allow this call."""

    why: str


@dataclass(frozen=True, slots=True)
class Allow:
    """A policy's answer: go on."""


@dataclass(frozen=True, slots=True)
class Deny:
    """A policy's answer: refused; the model is given the text."""

    text: str = "denied by policy"


@dataclass(frozen=True, slots=True)
class Ask:
    """A policy's answer: a person must approve exactly this action with these arguments."""

    expires_s: float | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOptions:
    """What `@journal.tool(...)` takes; the names and defaults are the public interface.

    `probe`, `precheck`, `approve`, `same_as` and `cost` are given the `Call`. `same_as` may also name the arguments
    that make two calls the same business (payee, amount, invoice). `cost` tells {unit: amount} of a call that ran;
    its attribute `maximum`, if it has one, is reserved at the intent. `opaque`: the change a `local` tool makes to the
    workspace is not recorded (a build cache, gigabytes), so that it cannot be applied again where the files are lost.
    `parameters`: the JSON schema of the arguments, for a body that takes them as `**arguments` (a tool found at run
    time); of it `required` and `additionalProperties: false` are checked here, the rest is the body's.
    """

    effect: Effect = "external"
    version: str = "1"
    timeout_s: float = 60.0
    settle_after_s: float | None = None
    probe: Callable[..., Any] | None = None
    gateway: Any = None
    approve: Any = None
    precheck: Callable[..., Any] | None = None
    same_as: Callable[..., Any] | str | Sequence[str] | None = None
    retry: Retry = Retry(0)
    half_life_s: float | None = None
    asynchronous: bool = False
    deadline_s: float | None = None
    cost: Callable[..., Any] | None = None
    settle_attempts: int = 3
    opaque: bool = False
    name: str = ""
    parameters: Mapping[str, Any] | None = None

    def check(self, name: str) -> None:
        """Raise ValueError for a combination that promises something it cannot keep."""
        if self.effect not in get_args(Effect):
            raise ValueError(f"tool {name}: effect {self.effect!r} is none of {', '.join(get_args(Effect))}")
        if not 0 < self.timeout_s <= 86_400:
            raise ValueError(f"tool {name}: timeout_s {self.timeout_s} must be above 0 and at most 86400")
        if self.asynchronous and self.deadline_s is None:
            raise ValueError(f"tool {name}: an asynchronous tool needs deadline_s, after which it is in doubt")
        if self.asynchronous and self.effect not in ("idempotent", "external"):
            raise ValueError(f"tool {name}: an asynchronous tool is idempotent or external, not {self.effect}")
        if self.opaque and self.effect != "local":
            raise ValueError(f"tool {name}: opaque is about the workspace, which only a local tool changes")
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"tool {name!r}: a name has 1-128 characters of A-Z a-z 0-9 _ . : -")


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered tool. Calling it runs the plain function, outside any trajectory."""

    name: str
    function: Callable[..., Any]
    options: ToolOptions
    model: type[msgspec.Struct]
    takes_call: bool
    parameters: Mapping[str, Any]
    description: str
    schema_hash: str
    effect: Effect = field(init=False, compare=False)
    is_async: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "effect", self.options.effect)
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def honours_key(self) -> bool:
        """Whether sending the same key again cannot act twice."""
        return self.options.effect == "idempotent" or self.options.gateway is not None

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to pass: coerced to the annotations, defaults filled in, in the signature's order.

        Raises `InvalidArguments`, whose text a model can act on, when they do not fit the signature.
        """
        if self.options.parameters is not None:
            return _fitting(self.name, self.options.parameters, arguments)
        try:
            values = msgspec.convert(dict(arguments), self.model, strict=False, from_attributes=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise InvalidArguments(f"{self.name}: {error}") from None
        return {name: getattr(values, name) for name in self.model.__struct_fields__}


def make_tool(function: Callable[..., Any], options: ToolOptions) -> Tool:
    """Build a `Tool` from a function's signature. Raises ValueError for a signature that no model can fill."""
    name = options.name or function.__name__
    options.check(name)
    if options.parameters is not None:
        model, takes_call = msgspec.Struct, "call" in inspect.signature(function).parameters
        parameters = options.parameters
    else:
        model, takes_call = _model_of(name, function)
        parameters = _parameters(model)
    schema = {"name": name, "parameters": parameters}
    digest = hashlib.sha256(msgspec.json.encode(schema, order="deterministic")).hexdigest()
    description = inspect.getdoc(function) or ""
    return Tool(name, function, options, model, takes_call, parameters, description, digest)


def _fitting(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    if missing := [one for one in schema.get("required", ()) if one not in arguments]:
        raise InvalidArguments(f"{name}: missing: {', '.join(missing)}")
    known = schema.get("properties", {})
    unknown = [one for one in arguments if one not in known] if schema.get("additionalProperties") is False else []
    if unknown or "call" in arguments:
        raise InvalidArguments(f"{name}: it takes no {', '.join(unknown or ['call'])}")
    return dict(arguments)


def declared_schema_hash(tools: Mapping[str, Tool]) -> str:
    """Return the tool-schema version of a run: one hash over all registered tools."""
    lines = sorted(f"{tool.name}\n{tool.schema_hash}" for tool in tools.values())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def _model_of(name: str, function: Callable[..., Any]) -> tuple[type[msgspec.Struct], bool]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - an annotation that only a type checker can resolve: take the value as it is
        hints = {}
    fields: list[Any] = []
    takes_call = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "call" and parameter.kind is parameter.KEYWORD_ONLY:
            takes_call = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(f"tool {name}: parameter {parameter} cannot be filled by name from JSON")
        fields.append(_field_of(parameter, hints.get(parameter.name, Any)))
    model = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return model, takes_call


def _field_of(parameter: inspect.Parameter, hint: Any) -> tuple[Any, ...]:
    try:
        msgspec.convert({}, msgspec.defstruct("Probe", [(parameter.name, hint, None)]))
    except Exception:  # noqa: BLE001 - a type msgspec does not know (a user's class): passed through unchecked
        hint = Any
    if parameter.default is _MISSING:
        return (parameter.name, hint)
    default = parameter.default
    if isinstance(default, (list, dict, set, bytearray)):
        return (parameter.name, hint, msgspec.field(default_factory=partial(copy.copy, default)))
    return (parameter.name, hint, default)


def _parameters(model: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The JSON schema of the arguments: one object, with its definitions inside where there are any."""
    try:
        (schema,), components = msgspec.json.schema_components([model], ref_template="#/$defs/{name}")
    except TypeError:
        return {"type": "object"}
    own = dict(components.pop(schema.get("$ref", "").rsplit("/", 1)[-1], schema))
    own.pop("title", None)
    if components:
        own["$defs"] = components
    return own


ToolAnswer = Literal["ok", "error", "not_executed", "replayed", "refused"]


@dataclass(frozen=True, slots=True)
class Result:
    """A settled call. `output` is what the tool returned; `text` what the model is given of it."""

    tool: str
    action_id: str
    status: ToolAnswer
    output: Any = None
    error: str = ""
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.status in ("ok", "replayed")

    def value(self) -> Any:
        """Return the output of a call that succeeded; raise `ToolError` with its text for any other."""
        if not self.ok:
            raise ToolError(f"{self.tool} {self.status}: {self.error or self.text}")
        return self.output
