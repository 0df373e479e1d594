"""The secret scanner's rules: what a credential looks like, plain, base64-encoded, JSON-escaped, or as a PEM block.

A cheap look for the fixed beginnings of credentials (and of their base64 forms) decides which texts are read by
regular expressions at all. Findings never carry the secret: a kind, and a hash of place and value.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

SCANNER_VERSION: Final = "1"
"""Raised with every change of a rule: every payload and blob is then scanned again."""

_PEM: Final = (
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[\s\S]{0,16384}?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?"
)
RULES: Final[dict[str, str]] = {
    "private_key": _PEM,
    "aws_key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",
    "github_token": r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})",
    "gitlab_token": r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}",
    "slack_token": r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}",
    "model_key": (
        r"(?<![A-Za-z0-9_+/=-])sk-"
        r"(?:(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,64}(?![A-Za-z0-9_+/=-]))"
    ),
    "stripe_key": r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "google_key": r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])",
    "hugging_face_token": r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",
    "package_token": r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36}|pypi-AgEI[A-Za-z0-9_-]{40,})",
    "jwt": r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "assigned_secret": (
        r"(?i)(?:password|passwd|secret(?:[_-]?(?:access)?[_-]?key)?|api[_-]?key|access[_-]?token|auth[_-]?token)"
        r"[\"'\\]{0,4}\s{0,2}[:=]\s{0,2}[\"'\\]{0,4}(?P<value>[A-Za-z0-9/+_.=!@#$%^&*-]{12,200})"
    ),
}
LITERALS: Final = (
    "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxe-", "xoxo-",
    "xoxp-", "xoxr-", "xoxs-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-ant-", "sk-or-", "sk_live_", "sk_test_",
    "rk_live_", "rk_test_", "AIza", "hf_", "npm_", "pypi-AgEI", "eyJ", "PRIVATE KEY", "sk-",
)  # fmt: skip
WORDS: Final = (
    "password",
    "passwd",
    "secret",
    "api_key",
    "api-key",
    "apikey",
    "access_token",
    "access-token",
    "auth_token",
)
ESCAPES: Final = tuple(f"\\u00{digit}" for digit in "234567")
"""Printable ASCII written as \\u escapes: somebody's encoder, and a hiding place."""

_EXPRESSIONS: Final = {kind: re.compile(pattern) for kind, pattern in RULES.items()}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_WRAPPED: Final = re.compile(r"(?<=[A-Za-z0-9+/]{40})(?:\r?\n|\\r\\n|\\n|\\\\n)(?=[A-Za-z0-9+/])")
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/nrtbf]))")
_PLACEHOLDER: Final = re.compile(
    r"(?i)^(?:x{6,}|\*{6,}|\.{6,}|your[_-]|example|change[_-]?me|placeholder|<|\$\{|env[.:_])"
)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class Found(NamedTuple):
    """One finding in a text. `start` and `end` are -1 where it shows only after unescaping."""

    kind: str
    start: int
    end: int
    value: str

    def offset_hash(self, place: str) -> str:
        """Return what recognises the same finding: hash (hex) of where it stands and what it is."""
        return hashlib.sha256(
            f"{place}\n{self.kind}\n{self.start}\n{self.value}".encode("utf-8", "replace")
        ).hexdigest()


def base64_forms(literal: str) -> list[str]:
    """Return the texts that `literal` leaves in base64, one for each of its three alignments."""
    forms = []
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + literal.encode()).decode()
        first, last = (0, 2, 3)[shift], (shift + len(literal)) * 8 // 6
        forms.append(encoded[first:last])
    return forms


ENCODED: Final = tuple(
    sorted(
        {
            form
            for one in (*LITERALS, *WORDS, "Password", "PASSWORD", "SECRET", "API_KEY")
            for form in base64_forms(one)
            if len(form) >= 4
        }
    )
)
PREFILTER: Final = (*LITERALS, *ENCODED, *ESCAPES)
"""A text with none of these, and none of `WORDS` in any case, holds nothing that the rules know."""


def find(text: str) -> list[Found]:
    """Return every finding in a text, those of its decoded parts included, in order of place."""
    found = {(one.kind, one.value): one for one in reversed(list(_plain(text)))}
    escaped = {(one.kind, _ESCAPED.sub(_unescape, one.value)) for one in found.values()}
    joined = _WRAPPED.sub("", text)
    for kind, value, start, end in _decoded(joined if joined != text else text, exact=joined == text):
        found.setdefault((kind, value), Found(kind, start, end, value))
    layer = text
    for _ in range(3):
        unescaped = _ESCAPED.sub(_unescape, layer)
        if unescaped == layer:
            break
        layer = unescaped
        for one in _plain(layer):
            if (one.kind, one.value) not in escaped:
                found.setdefault((one.kind, one.value), Found(one.kind, -1, -1, one.value))
        for kind, value, _start, _end in _decoded(_WRAPPED.sub("", layer), exact=False):
            found.setdefault((kind, value), Found(kind, -1, -1, value))
    return sorted(found.values(), key=lambda one: (one.start, one.end, one.kind))


def suspicious(text: str) -> bool:
    """Return whether a text is worth `find`: one look for all beginnings."""
    lower = text.lower()
    return any(one in text for one in PREFILTER) or any(one in lower for one in WORDS)


def redacted(text: str) -> tuple[str, list[str]]:
    """Return the text with every finding that has a place as `[REDACTED:kind]`, and the kinds."""
    spans = [one for one in find(text) if one.start >= 0]
    parts: list[str] = []
    end = 0
    kinds = []
    for one in spans:
        if one.start < end:
            end = max(end, one.end)
            continue
        parts += (text[end : one.start], f"[REDACTED:{one.kind}]")
        kinds.append(one.kind)
        end = one.end
    return "".join((*parts, text[end:])), kinds


def _plain(text: str) -> Iterator[Found]:
    for kind, expression in _EXPRESSIONS.items():
        for match in expression.finditer(text):
            if kind != "assigned_secret":
                yield Found(kind, match.start(), match.end(), match.group())
            elif _is_random(value := match["value"]):
                yield Found(kind, match.start("value"), match.end("value"), value)


def _decoded(text: str, *, exact: bool) -> Iterator[tuple[str, str, int, int]]:
    """Yield findings inside base64 runs: kind, value, and the run's place where `text` is the original."""
    for run in _BASE64.finditer(text):
        body = run.group()
        if not any(form in body for form in ENCODED):
            continue
        plain = body.rstrip("=").replace("-", "+").replace("_", "/")
        plain = plain[: len(plain) - (len(plain) % 4 == 1)]
        decoded = base64.b64decode(plain + "=" * (-len(plain) % 4)).decode("latin-1")
        for one in _plain(decoded):
            place = (run.start(), run.end()) if exact else (-1, -1)
            yield one.kind, one.value, *place


def _unescape(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return _CONTROL.get(match[2], match[2])


def _is_random(value: str) -> bool:
    """Return whether an assigned value looks generated: letters and digits, and more than three bits a character."""
    if _PLACEHOLDER.match(value) or not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    counts = {char: value.count(char) for char in set(value)}
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return entropy > 3.0
