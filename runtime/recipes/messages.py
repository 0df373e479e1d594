"""Messages that come back from a program or framework, found again among those the context holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


def found_again(messages: Sequence[Mapping[str, Any]], known: Iterable[Any]) -> list[Any]:
    """Return `messages`, each as the context holds it, where they differ only by what libraries leave out or rewrite:
    nulls, empty texts and lists, spaces in a call's arguments, the name beside a tool's result.
    """
    items = {_bare(item): item for item in known}
    return [items.get(_bare(one), one) for one in messages]


def system_first(body: dict[str, Any]) -> list[Any]:
    """Take the messages out of a request body; a system text beside them (Anthropic's) becomes the first."""
    messages, system = body.pop("messages"), body.pop("system", None)
    return [{"role": "system", "content": system}, *messages] if system else messages


def _bare(item: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in item.items() if name != "name" or item.get("role") != "tool"}
    return msgspec.json.encode(_without(kept), order="deterministic")


def _without(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        bare = {name: _without(value) for name, value in tree.items() if value not in (None, "", [])}
        return {**bare, "arguments": _parsed(bare["arguments"])} if "arguments" in bare else bare
    return [_without(one) for one in tree] if isinstance(tree, list | tuple) else tree


def _parsed(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except msgspec.DecodeError:
        return text
