"""Does a chat template render what the model saw? Checked for each row by rendering it, never by a model's name.

A template keeps prefixes of a row when, at every trained reply, what is rendered for the prompt begins the render of
the whole row. Where it does not, one row for all replies would train on prompts that the model never saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

from .sample import Sample

Render = Callable[..., str]
Arguments = Literal["text", "object"]


class Verdict(NamedTuple):
    """`kept`: one row is exact. Otherwise `place` is the first reply whose prompt is not kept; `refused` says why the
    template cannot render the row at all ("" if it can)."""

    kept: bool
    place: int = -1
    refused: str = ""


class Template:
    """A compiled chat template, in the environment that trainers give it."""

    def __init__(self, text: str, arguments: Arguments = "text") -> None:
        try:
            import jinja2.ext
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise UserError(
                "prefix.template: jinja2 is not installed; install trajlake[curate]", exit_code=EXIT_COULD_NOT_RUN
            ) from None
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.arguments = arguments
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_tag()]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda _format: "01 Jan 2026"
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"prefix.template: line {error.lineno}: {error.message}") from None

    def render(self, messages: list[dict[str, Any]], tools: Any, *, prompt: bool) -> str:
        """Return the text; raises whatever the template raises."""
        shown = [self._shown(message) for message in messages]
        return str(
            self._template.render(
                messages=shown, tools=tools, add_generation_prompt=prompt, bos_token="", eos_token="", documents=None
            )
        )

    def _shown(self, message: dict[str, Any]) -> dict[str, Any]:
        shown = {key: value for key, value in message.items() if key != "content" or value is not None}
        shown.setdefault("content", "")
        if self.arguments == "object" and shown.get("tool_calls"):
            shown["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _object(call["function"]["arguments"])}}
                for call in shown["tool_calls"]
            ]
        return shown

    def check(self, sample: Sample) -> Verdict:
        """Return whether one row says exactly what the model saw and said, and that nothing of it was lost."""
        messages, tools = sample.messages, sample.tools
        try:
            whole = self.render(messages, tools, prompt=False)
            for place in (place for place, flag in enumerate(sample.train) if flag):
                before = self.render(messages[:place], tools, prompt=True)
                after = self.render(messages[: place + 1], tools, prompt=False)
                if lost := self._lost(messages[: place + 1], tools, after):
                    return Verdict(False, place, lost)
                # The prompt as it was shown, and the reply as it was sampled: later turns may rewrite either.
                if not whole.startswith(before) or not whole.startswith(after):
                    return Verdict(False, place)
        except Exception as error:  # noqa: BLE001  # a template may raise anything; every row gets its answer
            return Verdict(False, -1, f"{type(error).__name__}: {error}"[:200])
        return Verdict(True)

    def _lost(self, messages: list[dict[str, Any]], tools: Any, rendered: str) -> str:
        """Return what of the last message, a reply, the render does not show: what may go without a change."""
        place, message = len(messages) - 1, messages[-1]
        calls = message.get("tool_calls") or []

        def same_as(**changes: Any) -> bool:
            try:
                return self.render([*messages[:-1], {**message, **changes}], tools, prompt=False) == rendered
            except Exception:  # noqa: BLE001  # a template that minds the change shows what was changed
                return False

        if str(message.get("content") or "").strip() and same_as(content=""):
            return f"message {place}: its text is not rendered"
        for index in range(len(calls)):
            if same_as(tool_calls=[*calls[:index], *calls[index + 1 :]]):
                return f"message {place}: {'a parallel call' if len(calls) > 1 else 'its call'} is not rendered"
        return ""


def _object(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _generation_tag() -> Any:
    """Return an extension that reads `{% generation %}…{% endgeneration %}` as its body."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  # jinja2's own protocol

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return Generation
