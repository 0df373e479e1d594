"""The finder of personal data that is optional: what is called of it, and that nothing is looked up on a network.

Presidio and a spaCy model take 393 MB, so that stand-ins of what 2.2 answers run here; the adapter was run once with
presidio-analyzer 2.2.366 and a small English model.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trajlake.pipelines.curate.pii import Presidio, Span, finder_of, placeholders
from trajlake.runtime.cli_errors import UserError


def stand_in(monkeypatch: pytest.MonkeyPatch, models: list[str]) -> None:
    class Provider:
        def __init__(self, *, nlp_configuration: dict[str, Any]) -> None:
            self.models = nlp_configuration["models"]

        def create_engine(self) -> Any:
            return self.models

    class Engine:
        def __init__(self, *, nlp_engine: Any, supported_languages: list[str]) -> None:
            assert (nlp_engine[0]["lang_code"], supported_languages) == ("en", ["en"])

        def analyze(self, *, text: str, language: str) -> list[Any]:
            assert language == "en"
            found = re.finditer("Ann", text)
            return [SimpleNamespace(start=one.start(), end=one.end(), entity_type="PERSON") for one in found]

    names: dict[str, dict[str, Any]] = {
        "presidio_analyzer": {"AnalyzerEngine": Engine},
        "presidio_analyzer.nlp_engine": {"NlpEngineProvider": Provider},
        "spacy": {},
        "spacy.util": {"get_installed_models": lambda: models},
        "tldextract": {},
        "tldextract.tldextract": {"TLD_EXTRACTOR": SimpleNamespace(suffix_list_urls=("https://lists",))},
    }
    for name, members in names.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.0")


def test_it_is_refused_by_name_where_it_is_not_installed_or_would_download_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "presidio_analyzer", None)
        with pytest.raises(UserError, match="presidio-analyzer is not installed"):
            finder_of("presidio")
    stand_in(monkeypatch, models=["de_core_news_sm"])
    with pytest.raises(UserError, match="no English spaCy model is installed"):
        finder_of("presidio")


def test_its_findings_are_spans_its_model_is_part_of_its_version_and_it_looks_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(monkeypatch, models=["en_other", "en_core_web_sm", "en_core_web_lg"])
    finder = Presidio()
    assert finder.version == "1.0 en_core_web_lg 1.0"
    assert sys.modules["tldextract.tldextract"].TLD_EXTRACTOR.suffix_list_urls == ()
    text = "Ask Ann, then Ann"
    spans = finder.find(text)
    assert spans == [Span(4, 7, "person"), Span(14, 17, "person")]
    assert placeholders(text, spans, {}) == "Ask <person_1>, then <person_1>"
