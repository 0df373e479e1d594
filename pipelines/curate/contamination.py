"""Is an evaluation's prompt, or its gold answer, in a training row? Runs of words, over prompt and completion alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import polars as pl

PATTERNS_PER_SCAN: Final = 20_000
"""Runs looked for at once: an automaton over more takes too much memory."""


def contaminated(messages: pl.Series, evaluations: Mapping[str, bytes], words: int) -> list[str | None]:
    """Return, per row of JSON text, `file: the run of words` that it shares with an evaluation, or None.

    Text is compared in lower case, letters and digits only, so that quoting, layout and escapes hide nothing.
    A text of an evaluation shorter than `words` words counts whole, if it has at least five.
    """
    plain = plain_words(messages)
    found: list[str | None] = [None] * len(messages)
    for name, data in sorted(evaluations.items()):
        runs = sorted(set(runs_of(data, words)))
        for first in range(0, len(runs), PATTERNS_PER_SCAN):
            part = runs[first : first + PATTERNS_PER_SCAN]
            for place in plain.str.contains_any(part).arg_true().to_list():
                if found[place] is None:
                    text = plain[place]
                    found[place] = f"{name}: {next(run for run in part if run in text).strip()}"
    return found


def plain_words(texts: pl.Series) -> pl.Series:
    """Return texts as ` word word … ` in lower case; JSON escapes are gaps."""
    lower = texts.str.replace_all(r"\\u[0-9a-fA-F]{4}|\\.", " ").str.to_lowercase()
    return pl.select(pl.lit(" ") + lower.str.replace_all(r"[^\p{L}\p{N}]+", " ") + pl.lit(" ")).to_series()


def runs_of(data: bytes, words: int) -> Iterator[str]:
    """Yield every run of `words` words of every text in an evaluation file (JSON lines, JSON, or plain text)."""
    texts = pl.Series("text", list(_texts(data)), pl.String)
    if not len(texts):
        return
    for plain in plain_words(texts).to_list():
        listed = plain.split()
        if 5 <= len(listed) < words:
            yield f" {' '.join(listed)} "
        for place in range(len(listed) - words + 1):
            yield f" {' '.join(listed[place : place + words])} "


def _texts(data: bytes) -> Iterator[str]:
    try:
        yield from _strings(msgspec.json.decode(data))
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    plain: list[str] = []
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            yield from _strings(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeEncodeError):
            plain.append(line)
    if plain:
        yield "\n".join(plain)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
