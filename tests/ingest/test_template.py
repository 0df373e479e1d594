"""The importer that the README shows: short, conforming, found through its entry point."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import jsonl
from trajlake.ingest.formats import registry
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.contract import Importer
from trajlake.ingest.formats.detect import detect
from trajlake.ingest.sources import Source

TALK = jsonl({"who": "me", "says": "hi"}, {"who": "bot", "says": "hello"}, {"odd": 1}, {"who": "bot", "says": "bye"})


def template(project: Path) -> tuple[str, dict[str, Any]]:
    text = (project / "ingest" / "README.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "IMPORTER" in block]
    names: dict[str, Any] = {}
    exec(code, names)
    return code, names


def test_the_template_is_short_and_conforms(project: Path) -> None:
    code, names = template(project)
    assert len(code.splitlines()) < 60
    importer = names["IMPORTER"]
    assert isinstance(importer, Importer)
    assert check(importer, Source.of_bytes(TALK, "t.jsonl")) == []
    assert check(importer, Source.of_bytes(TALK + b'{"who', "t.jsonl")) == []


def test_an_importer_of_another_package_is_found_by_name_and_by_content(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer = template(project)[1]["IMPORTER"]
    point = EntryPoint("talk", "somewhere:IMPORTER", registry.IMPORTERS_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: importer)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert registry.importer("talk") is importer
    assert detect(Source.of_bytes(TALK, "t.jsonl")) is importer


def test_the_checks_find_an_importer_that_breaks_the_rules(project: Path) -> None:
    importer = template(project)[1]["IMPORTER"]
    read = type(importer).read

    class Renumbers(type(importer)):  # type: ignore[misc]
        def read(self, source: Any, options: Any, loss: Any) -> Any:
            items = list(read(self, source, options, loss))
            yield items[0]
            yield from reversed(items[1:])

    class Forgets(type(importer)):  # type: ignore[misc]
        def read(self, source: Any, options: Any, loss: Any) -> Any:
            loss.seen["lost"] = 1
            yield from read(self, source, options, loss)

    assert any("cut at byte" in line for line in check(Renumbers(), Source.of_bytes(TALK, "t.jsonl")))
    assert any("accounted for" in line for line in check(Forgets(), Source.of_bytes(TALK, "t.jsonl")))
