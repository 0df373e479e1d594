"""OpenTelemetry traces: OTLP documents and lines (`resourceSpans`), protobuf, and spans as the SDKs dump them.

What a span says is read by `otlp_attributes.py`; protobuf is read as the JSON that OTLP defines for it
(`otlp_protobuf.py`), its own bytes stay in the source's blob. In lines and in files of many messages a trace is
imported when its root span has come, since spans are written as they end and the root ends last; `--ended` imports
traces without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from ..sources import Source
from .build import label, time_us
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import Document, first_value, is_lines, read_records, refuse, under
from .json_text import raw_elements, raw_members, text_of, value_of
from .otlp_attributes import SpanFacts, step_of
from .otlp_protobuf import NotProtobuf, is_bare, looks_like_traces, messages
from .trace_steps import Step, Trace

NAME: Final = "otlp"
LINE_ENDINGS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".ndjson.gz", ".ndjson.zst")
STATUS_ERROR: Final = frozenset({2, "STATUS_CODE_ERROR", "ERROR"})


class _Span(NamedTuple):
    trace: str
    step: Step


class Otlp:
    """The importer `otlp`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        if looks_like_traces(head):
            return 90
        start = head.lstrip()[:4096]
        if b'"resourceSpans"' in start or b'"resource_spans"' in start:
            return 96
        value = first_value(head)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return 92 if _is_span(value) else 0
        dumped = b'"spanContext"' in head or (b'"context"' in head and b'"span_id"' in head)
        return 85 if dumped and b'"attributes"' in head else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        ready: list[Item] = []
        if looks_like_traces(source.head()):
            records, lines = _unpacked(source, loss)
        else:
            lines = is_lines(source) and (source.name.endswith(LINE_ENDINGS) or b"\n" in source.head().strip())
            records = read_records(source, loss)
        reading = _Reading(source, options, loss, ready)
        found = False
        for record in records:
            spans = list(_spans_of(record))
            if not spans and not found and not _is_batch(record):
                break
            found = True
            reading.take(spans, emit_complete=lines)
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "holds no OpenTelemetry spans")
        reading.finish(hold=lines and not options.ended)
        yield from ready


def _unpacked(source: Source, loss: Loss) -> tuple[Iterator[Document], bool]:
    """Return the messages of a protobuf source as JSON documents, and whether it is one of many that may grow."""
    data = source.read()
    found = messages(data)
    first = next(found, NotProtobuf("byte 0: is empty"))
    if isinstance(first, NotProtobuf):
        raise BadSource(source.name, "", f"{first}; the file may be cut short")

    def documents() -> Iterator[Document]:
        for number, message in enumerate(chain((first,), found), 1):
            if isinstance(message, NotProtobuf):
                loss.problem(f"message {number}", f"{message}; earlier messages stand")
                loss.skip("torn last message")
                return
            yield Document(msgspec.Raw(message), f"message {number}")

    return documents(), not is_bare(data)


class _Reading:
    """The traces of one source: those that wait for their root, and those that are done."""

    def __init__(self, source: Source, options: ReadOptions, loss: Loss, ready: list[Item]) -> None:
        self.source, self.options, self.loss, self.ready = source, options, loss, ready
        self.waiting: dict[str, list[Step]] = {}
        self.done: dict[str, Trace] = {}

    def take(self, spans: list[_Span], *, emit_complete: bool) -> None:
        """Take the spans of one record."""
        touched = []
        for span in spans:
            if span.trace in self.done:
                self.done[span.trace].late(span.step)
                continue
            self.waiting.setdefault(span.trace, []).append(span.step)
            touched.append(span.trace)
        if emit_complete:
            for trace in dict.fromkeys(touched):
                if any(not step.parent for step in self.waiting[trace]):
                    self._emit(trace)

    def finish(self, *, hold: bool) -> None:
        """End of the source."""
        for trace in list(self.waiting):
            if hold:
                self.loss.hold("span", len(self.waiting.pop(trace)))
            else:
                self._emit(trace)

    def _emit(self, trace_id: str) -> None:
        steps = self.waiting.pop(trace_id)
        trace = Trace(NAME, trace_id, self.source.name, self.options.tenant, self.ready.append, self.loss)
        try:
            trace.build(steps)
        except BadSource as error:
            self.loss.skip("hostile id", len(steps))
            self.loss.problem(steps[0].place, str(error))
            return
        self.done[trace_id] = trace


def _is_batch(record: Document) -> bool:
    parts = raw_members(record.raw) or {}
    return "resourceSpans" in parts or "resource_spans" in parts


def _is_span(value: dict[str, Any]) -> bool:
    has_id = "spanContext" in value or "spanId" in value or "span_id" in value
    context = value.get("context")
    has_id = has_id or (isinstance(context, dict) and "span_id" in context)
    return has_id and "attributes" in value


def _spans_of(record: Document) -> Iterator[_Span]:
    parts = raw_members(record.raw) or {}
    batches = parts.get("resourceSpans", parts.get("resource_spans"))
    if batches is None:
        value = value_of(record.raw)
        if isinstance(value, dict) and _is_span(value):
            yield _span(record.raw, record.place or "/", value, {})
        return
    for index, batch in enumerate(raw_elements(batches) or []):
        inside = raw_members(batch) or {}
        resource = value_of(inside["resource"]) if "resource" in inside else {}
        shared = attributes_of(resource.get("attributes")) if isinstance(resource, dict) else {}
        scopes = inside.get("scopeSpans", inside.get("scope_spans", inside.get("instrumentationLibrarySpans")))
        for number, scope in enumerate((raw_elements(scopes) if scopes is not None else None) or []):
            spans = (raw_members(scope) or {}).get("spans")
            for at, raw in enumerate((raw_elements(spans) if spans is not None else None) or []):
                value = value_of(raw)
                if isinstance(value, dict):
                    place = under(record.place, f"/resourceSpans/{index}/scopeSpans/{number}/spans/{at}")
                    yield _span(raw, place, value, shared)


def _span(raw: msgspec.Raw, place: str, value: dict[str, Any], resource: dict[str, Any]) -> _Span:
    context = value.get("spanContext") or value.get("context") or value
    context = context if isinstance(context, dict) else value
    parent = value.get("parentSpanId") or value.get("parent_id") or value.get("parent_span_id") or ""
    nested = value.get("parentSpanContext")
    if not parent and isinstance(nested, dict):
        parent = nested.get("spanId") or ""
    status = value.get("status")
    status = status if isinstance(status, dict) else {}
    code = status.get("code", status.get("status_code"))
    end = moment(value, "endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time")
    facts = SpanFacts(
        id=_hex_id(context.get("spanId", context.get("span_id", value.get("spanId", value.get("span_id"))))),
        parent=_hex_id(parent),
        name=label(value.get("name")),
        start=moment(value, "startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time") or 0,
        end=end,
        place=place,
        raw=text_of(raw),
        attributes=attributes_of(value.get("attributes")),
        resource=resource,
        events=_events_of(value.get("events")),
        error=label(status.get("message", status.get("description"))) or "error" if code in STATUS_ERROR else "",
    )
    trace = _hex_id(context.get("traceId", context.get("trace_id", value.get("traceId", value.get("trace_id")))))
    return _Span(trace or "no-trace-id", step_of(facts))


def _hex_id(value: Any) -> str:
    text = label(value)
    text = text[2:] if text.startswith("0x") else text
    return "" if not text.strip("0") else text


def moment(value: dict[str, Any], *keys: str) -> int | None:
    """Return a span's time as µs: nanoseconds as text or number, an HrTime pair [s, ns], ISO text."""
    for key in keys:
        told = value.get(key)
        if isinstance(told, list) and len(told) == 2 and all(isinstance(one, (int, float)) for one in told):
            return int(told[0]) * 1_000_000 + int(told[1]) // 1_000
        if isinstance(told, str) and told.isdigit():
            told = int(told)
        if isinstance(told, int) and not isinstance(told, bool) and told > 10**15:
            return told // 1_000
        if told is not None and (found := time_us(told)) is not None:
            return found
    return None


def attributes_of(told: Any) -> dict[str, Any]:
    """Return attributes as plain data, from OTLP's [{key, value}] or from an object; nested objects are flattened."""
    if isinstance(told, dict):
        return told
    found = {}
    for one in told if isinstance(told, list) else []:
        if isinstance(one, dict) and "key" in one:
            found[str(one["key"])] = _any_value(one.get("value"))
    return found


def _any_value(told: Any) -> Any:
    if not isinstance(told, dict) or len(told) != 1:
        return told
    kind, value = next(iter(told.items()))
    kind = kind.replace("_", "").lower()
    if kind == "intvalue":
        return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value
    if kind == "arrayvalue" and isinstance(value, dict):
        return [_any_value(one) for one in value.get("values") or []]
    if kind == "kvlistvalue" and isinstance(value, dict):
        return attributes_of(value.get("values") or [])
    return value


def _events_of(told: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        (label(one.get("name")), attributes_of(one.get("attributes")))
        for one in (told if isinstance(told, list) else [])
        if isinstance(one, dict)
    ]


IMPORTER: Final = Otlp()
