"""What Claude Code files and Anthropic Messages share: blocks, usage, tool results, the text of arguments."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trajlake.schemas.events import Usage

from .build import Call, label
from .json_text import NotJson, decode, is_absent, raw_elements, string_of, text_of, value_of

FORMAT: Final = "anthropic.messages/1"
NO_RAW: Final = msgspec.Raw(b"")
CALL_BLOCKS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")


class Block(msgspec.Struct):
    """One content block; `input` and `content` keep their exact text."""

    type: Any = None
    text: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = NO_RAW
    tool_use_id: Any = None
    content: msgspec.Raw = NO_RAW
    is_error: Any = None


class Message(msgspec.Struct):
    """A message of the API; `content` keeps its exact text."""

    id: Any = None
    role: Any = None
    model: Any = None
    content: msgspec.Raw = NO_RAW
    stop_reason: Any = None
    usage: Any = None


class _Blocks(msgspec.Struct):
    content: list[Block] = []


_any: Final = msgspec.json.Decoder()
_blocks: Final = msgspec.json.Decoder(_Blocks)


def blocks_of(content: msgspec.Raw) -> list[tuple[msgspec.Raw, Block]] | None:
    """Return the blocks of a content array with their texts; None if it is no array. Odd elements are empty blocks."""
    raws = raw_elements(content)
    if raws is None:
        return None
    return [(raw, decode(raw, Block) or Block()) for raw in raws]


def call_of(block: Block, pointer: str) -> Call:
    """Return the call of a `tool_use` block. Arguments are an object there: their text is the exact slice."""
    arguments = None if is_absent(block.input) else text_of(block.input)
    return Call(label(block.name), label(block.id), arguments, "" if arguments is not None else pointer)


def is_call(block: Block) -> bool:
    """Return whether a block proposes a call (of a tool here, or of one at the provider)."""
    return block.type in CALL_BLOCKS


def output_of(content: msgspec.Raw) -> Any:
    """Return what a result delivered: a string as it is, text blocks as their text, else the blocks themselves."""
    if is_absent(content):
        return None
    text = string_of(content)
    if text is not None:
        return text
    value = value_of(content)
    return joined_text(value) if is_text_blocks(value) else value


def is_text_blocks(value: Any) -> bool:
    """Return whether a value is a list of nothing but text blocks (and not an empty list)."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
                for part in value)
    )  # fmt: skip


def joined_text(value: Any) -> str:
    """Return the text of a list of text blocks (one for which `is_text_blocks` holds)."""
    return "".join(part["text"] for part in value)


def text_or_value(value: Any) -> Any:
    """Return the text of a list of nothing but text blocks, any other value as it is."""
    return joined_text(value) if is_text_blocks(value) else value


def needs_wire(content: msgspec.Raw) -> bool:
    """Return whether the shape of a result's content cannot be told from its output: keep it beside."""
    if is_absent(content) or string_of(content) is not None:
        return False
    value = value_of(content)
    return not (is_text_blocks(value) and len(value) == 1 and set(value[0]) == {"type", "text"})


def count(value: Any) -> int | None:
    """Return a token count; None for anything else."""
    return value if type(value) is int and value >= 0 else None


def usage_of(tree: Any) -> Usage | None:
    """Return usage with `input_total` including cached tokens.

    The API's top-level counts leave out a server-side compaction pass, which stands only in `iterations`.
    """
    if not isinstance(tree, dict):
        return None
    parts = tree.get("iterations")
    if isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") == "compaction" for part in parts):
        passes = [part for part in parts if isinstance(part, dict)]
    else:
        passes = [tree]
    if len(passes) == 1:
        (one,) = passes
        fresh, read = count(one.get("input_tokens")), count(one.get("cache_read_input_tokens"))
        written, made = count(one.get("cache_creation_input_tokens")), count(one.get("output_tokens"))
    else:
        fresh, read = _sum(passes, "input_tokens"), _sum(passes, "cache_read_input_tokens")
        written, made = _sum(passes, "cache_creation_input_tokens"), _sum(passes, "output_tokens")
    if fresh is None and made is None:
        return None
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    details = tree.get("output_tokens_details")
    thought = count(details.get("thinking_tokens")) if isinstance(details, dict) else None
    return Usage(input_total=total, cached_read=read, cache_write=written, output=made, reasoning=thought)


def _sum(passes: list[dict[str, Any]], key: str) -> int | None:
    counts = [number for number in (count(part.get(key)) for part in passes) if number is not None]
    return sum(counts) if counts else None


def calls_in(raw: msgspec.Raw, blocks: list[Any]) -> list[Call]:
    """Return the calls of an assistant message given as exact text, whose decoded blocks are `blocks`."""
    wanted = [n for n, block in enumerate(blocks) if isinstance(block, dict) and block.get("type") in CALL_BLOCKS]
    if not wanted:
        return []
    try:
        found = _blocks.decode(raw).content
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        message = decode(raw, Message) or Message()
        found = [decode(text, Block) or Block() for text in raw_elements(message.content) or ()]
    return [call_of(found[n], f"/content/{n}/input") for n in wanted]


def output_and_shape(content: Any) -> tuple[Any, bool]:
    """Return what a result's decoded content delivered, and whether its shape must be kept beside it."""
    if content is None or isinstance(content, str):
        return content, False
    if is_text_blocks(content):
        return joined_text(content), not (len(content) == 1 and set(content[0]) == {"type", "text"})
    return content, True


def wire_of(raw: msgspec.Raw) -> tuple[Any, bool]:
    """Return a message's value, and whether it must be stored beside its text: a plain decoder refuses the text."""
    try:
        return _any.decode(raw), False
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        try:
            return value_of(raw), True
        except NotJson:
            return text_of(raw), True
