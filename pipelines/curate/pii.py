"""Personal data in rows, behind one interface: a finder yields spans. Patterns need nothing, Presidio is optional."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Final, NamedTuple, Protocol

import msgspec
import polars as pl

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

PATTERNS: Final = {
    "email": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
    "phone": r"(?<![\w.])\+?\d{1,3}[ .-]\(?\d{2,4}\)?[ .-]\d{3,4}[ .-]\d{3,4}(?![\w.])",
    "card": r"(?<!\d)(?:\d{4}[ -]){3}\d{4}(?!\d)",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b",
    "ssn": r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)",
}
_ALL: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items()))
_CHEAP: Final = r"@|\d[ .-]\(?\d|[A-Z]{2}\d{2}|\d{3}-\d{2}-"
"""What any of the patterns needs; most texts have none of it."""


MODELS: Final = ("en_core_web_trf", "en_core_web_lg", "en_core_web_md", "en_core_web_sm")
"""spaCy models, the better ones first; another English one is taken where none of them is there."""


class Span(NamedTuple):
    start: int
    end: int
    kind: str


class Finder(Protocol):
    """Finds personal data. `name` and `version` stand in the manifest."""

    name: str
    version: str

    def find(self, text: str) -> list[Span]: ...


class Patterns:
    """The built-in tier: addresses and numbers that have a form."""

    name = "patterns"
    version = "1"

    def find(self, text: str) -> list[Span]:
        return [Span(m.start(), m.end(), str(m.lastgroup)) for m in _ALL.finditer(text)]


class Presidio:
    """Presidio's analyzer with an English spaCy model, where both are installed: slow, so only texts that changed are
    read. Left to itself it would download a model, and lists of domains: what a set is cut with is what is here.
    """

    name = "presidio"

    def __init__(self) -> None:
        try:
            from importlib.metadata import version

            presidio = import_module("presidio_analyzer")
            provider = import_module("presidio_analyzer.nlp_engine").NlpEngineProvider
            installed = import_module("spacy.util").get_installed_models
        except ImportError:
            raise UserError(
                "pii.finder = presidio: presidio-analyzer is not installed; install it, or use patterns",
                exit_code=EXIT_COULD_NOT_RUN,
            ) from None
        models = sorted(name for name in installed() if name.startswith("en_"))
        if not models:
            raise UserError(
                "pii.finder = presidio: no English spaCy model is installed; install en_core_web_lg, or use patterns",
                exit_code=EXIT_COULD_NOT_RUN,
            )
        model = next((name for size in MODELS for name in models if name.startswith(size)), models[0])
        self.version = f"{version('presidio-analyzer')} {model} {version(model)}"
        _look_nothing_up()
        chosen = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
        engine = provider(nlp_configuration=chosen).create_engine()
        self._engine = presidio.AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])

    def find(self, text: str) -> list[Span]:
        found = self._engine.analyze(text=text, language="en")
        return [Span(one.start, one.end, one.entity_type.lower()) for one in found]


def _look_nothing_up() -> None:
    """Keep Presidio's check of domains to the list it came with."""
    with contextlib.suppress(ImportError):
        import_module("tldextract.tldextract").TLD_EXTRACTOR.suffix_list_urls = ()


@lru_cache(maxsize=4)
def finder_of(name: str) -> Finder:
    """Return the finder that a policy names."""
    return Presidio() if name == "presidio" else Patterns()


def count_pii(messages: pl.Series, name: str) -> list[str | None]:
    """Return, per row of JSON text, `{"kind": count}` of what was found as JSON text, or None."""
    if name == "off":
        return [None] * len(messages)
    finder = finder_of(name)
    suspects = messages.str.contains(_CHEAP if name == "patterns" else "").to_list()
    found: list[str | None] = []
    for text, suspect in zip(messages.to_list(), suspects, strict=True):
        tally: dict[str, int] = {}
        for span in finder.find(text) if suspect and text else ():
            tally[span.kind] = tally.get(span.kind, 0) + 1
        found.append(msgspec.json.encode(dict(sorted(tally.items()))).decode() if tally else None)
    return found


def placeholders(text: str, spans: list[Span], known: dict[str, str]) -> str:
    """Return `text` with every span as a typed placeholder, the same one for the same value (`known` is filled)."""
    parts: list[str] = []
    end = 0
    for span in _apart(spans):
        value = text[span.start : span.end]
        mark = known.get(value)
        if mark is None:
            number = 1 + sum(1 for one in known.values() if one.startswith(f"<{span.kind}_"))
            mark = known[value] = f"<{span.kind}_{number}>"
        parts += (text[end : span.start], mark)
        end = span.end
    return "".join((*parts, text[end:]))


def _apart(spans: list[Span]) -> Iterator[Span]:
    end = 0
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.start >= end:
            yield span
            end = span.end
