"""Redaction of a row, where the policy opts in: never of what a model wrote, always recorded, and checked after."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from .pii import finder_of, placeholders
from .policy import Policy
from .sample import REDACTION_VERSION, Sample
from .secret_rules import find, redacted


def redact(sample: Sample, policy: Policy, *, secret: bool, pii: bool) -> str | None:
    """Redact in place what the policy lets be redacted; return why the row must go instead, or None.

    What was put in place of what stands in `redactions`: kinds and counts, and the hash of the text before.
    """
    counts: dict[str, int] = {}
    messages = sample.messages
    before = hashlib.sha256(msgspec.json.encode(messages)).hexdigest()
    if secret and policy.secrets.action == "redact":
        for message in messages:
            if message["role"] != "assistant" and isinstance(message.get("content"), str):
                message["content"], kinds = redacted(message["content"])
                for kind in kinds:
                    counts[kind] = counts.get(kind, 0) + 1
        if find(msgspec.json.encode(messages).decode()):
            return "secret"
    if pii and policy.pii.action == "redact":
        finder = finder_of(policy.pii.finder)
        known: dict[str, str] = {}
        messages = [_mapped(one, finder, known) for one in messages]
        for mark in known.values():
            kind = mark[1:].rpartition("_")[0]
            counts[kind] = counts.get(kind, 0) + 1
    if counts:
        sample.texts = [msgspec.json.encode(message) for message in messages]
        facts = {"version": REDACTION_VERSION, "counts": dict(sorted(counts.items())), "before": before}
        sample.facts["redactions"] = msgspec.json.encode(facts).decode()
        tail = hashlib.sha256(f"{sample.sample_id}\nredaction {REDACTION_VERSION}".encode()).hexdigest()[:32]
        sample.facts["sample_id"] = sample.sample_id[:32] + tail
        for name in ("prompt_ids_json", "completion_ids_json", "logprobs_json"):
            sample.facts[name] = None
    return None


def _mapped(message: dict[str, Any], finder: Any, known: dict[str, str]) -> dict[str, Any]:
    changed = dict(message)
    for key in ("content", "reasoning_content"):
        if isinstance(changed.get(key), str):
            changed[key] = placeholders(changed[key], finder.find(changed[key]), known)
    if changed.get("tool_calls"):
        changed["tool_calls"] = [
            {
                **call,
                "function": {**call["function"], "arguments": _arguments(call["function"]["arguments"], finder, known)},
            }
            for call in changed["tool_calls"]
        ]
    return changed


def _arguments(text: str, finder: Any, known: dict[str, str]) -> str:
    return placeholders(text, finder.find(text), known)
