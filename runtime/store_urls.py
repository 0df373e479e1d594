"""URLs of stores as `root.json` may hold them: they say where, never by which secret."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

SECRET_OPTIONS: Final = frozenset({"password", "passwd", "sslpassword", "secret", "key", "token", "sas_token"})
"""Options of a URL that would carry a secret."""


def secret_in(url: str) -> bool:
    """Whether a URL carries a password or another secret. An empty password is none."""
    parts = urlsplit(url)
    user_part = parts.netloc.rpartition("@")[0]
    options = {name.lower(): value for name, value in parse_qsl(parts.query)}
    return bool(user_part.partition(":")[2]) or any(options.get(name) for name in SECRET_OPTIONS)


def without_secrets(url: str) -> str:
    """Return the URL fit for showing: password and secret options left out."""
    if not secret_in(url):
        return url
    parts = urlsplit(url)
    user_part, at, place = parts.netloc.rpartition("@")
    options = [(name, value) for name, value in parse_qsl(parts.query) if name.lower() not in SECRET_OPTIONS]
    netloc = f"{user_part.partition(':')[0]}{at}{place}"
    rest = urlunsplit(("", "", parts.path, urlencode(options), parts.fragment))
    return f"{parts.scheme}://{netloc}{rest}"


def check_no_secret(name: str, url: str) -> None:
    """Raise ValueError, in one line that does not repeat the secret, for a URL that must not be written down."""
    if secret_in(url):
        raise ValueError(
            f"{name} URL {without_secrets(url)}: holds a password or key, which is never written into a root; leave it "
            "out and name it by reference (PGPASSWORD, PGPASSFILE or ~/.pgpass; AWS_PROFILE or AWS_ACCESS_KEY_ID)"
        )
