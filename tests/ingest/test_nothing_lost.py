"""Every text of the real files stands in some event, or is of a kind that is named here and in the loss report.

Independent of the importers: all strings of the source, JSON inside strings opened, are looked for in all payloads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.ingest.reading import Read, read
from tests.ingest.test_inspect import members_of
from trajlake.ingest.formats.detect import detect
from trajlake.ingest.sources import Source

FOLDERS = ("swe-agent", "mini-swe-agent", "openhands", "langfuse", "otlp-derived", "openinference", "inspect",
           "inspect-derived")  # fmt: skip

# Texts that no event holds, by the end of their path, and what says so.
NOT_STORED = {
    "swe-agent": ("/message_type", "/cache_control/type", "/agent"),  # note: what the harness notes beside a message
    "openhands": ("/history/*/action",),  # the words "message" of two actions that became messages
    "langfuse": ("/input",),  # the text around messages that became messages
    "otlp": ("/attributes/ai.prompt.messages", "/value/stringValue", "/key", "/startTimeUnixNano", "/endTimeUnixNano"),
}  # fmt: skip


def strings_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from strings_of(one, f"{path}/{key}")
    elif isinstance(value, list):
        for one in value:
            yield from strings_of(one, f"{path}/*")
    elif isinstance(value, str):
        yield path, value
        if value[:1] in ("{", "["):
            try:
                opened = json.loads(value)
            except ValueError:
                return
            yield from strings_of(opened, path)


def documents_of(path: Path) -> list[Any]:
    if path.suffix == ".eval":
        return list(members_of(path).values())
    text = path.read_text()
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def lost(got: Read, documents: list[Any], allowed: tuple[str, ...]) -> dict[str, str]:
    payloads = [msgspec.to_builtins(item.payload) for item in got.items]
    held = {text for payload in payloads for _, text in strings_of(payload)}
    everything = "\n".join(json.dumps(payload, ensure_ascii=False) for payload in payloads)
    found = {}
    for document in documents:
        for path, text in strings_of(document):
            once = json.dumps(text, ensure_ascii=False)[1:-1]
            twice = json.dumps(once, ensure_ascii=False)[1:-1]
            stands = text in held or once in everything or twice in everything
            if not stands and not path.endswith(allowed) and not text.startswith(("attachment://", "tc://")):
                found[path] = text[:80]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_text_of_a_real_file_is_lost_unsaid(shared_data: Path, folder: str) -> None:
    for path in sorted(one for one in (shared_data / folder).iterdir() if one.is_file()):
        name = detect(Source.of_path(str(path))).name
        assert lost(read(name, path), documents_of(path), NOT_STORED.get(name, ())) == {}, path.name


def test_the_check_finds_what_is_lost() -> None:
    document = {
        "info": {"exit_status": "Submitted"},
        "trajectory_format": "mini-swe-agent-1",
        "messages": [{"role": "user", "content": "go"}],
    }
    got = read("mini-swe-agent", json.dumps(document).encode())
    changed = {**document, "messages": [{"role": "user", "content": "go away"}]}
    assert lost(got, [changed], ()) == {"/messages/*/content": "go away"}


def test_auto_names_the_format_of_every_real_file(shared_data: Path) -> None:
    expected = {"otlp-derived": "otlp", "openinference": "otlp", "inspect-derived": "inspect", "atif-derived": "atif"}
    for folder in sorted(
        one for one in shared_data.iterdir() if one.is_dir() and one.name not in ("LICENSES", "multi-agent")
    ):
        for path in sorted(one for one in folder.iterdir() if one.is_file()):
            assert detect(Source.of_path(str(path))).name == expected.get(folder.name, folder.name), path.name
