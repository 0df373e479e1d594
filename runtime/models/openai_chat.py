"""`openai_chat`: any server that speaks the chat completions API."""

from __future__ import annotations

from collections.abc import Mapping

from .adapter import HttpModel, format_named
from .openai_format import FORMAT
from .wire import Endpoint


def openai_chat(
    model: str,
    *,
    version: str = "",
    base_url: str = "https://api.openai.com/v1",
    key_env: str | None = "OPENAI_API_KEY",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> HttpModel:
    """Return a model. `key_env` NAMES the environment variable with the key (None: no key); it is read at each send."""
    endpoint = Endpoint(
        url=f"{base_url.rstrip('/')}/chat/completions", key_env=key_env, headers=headers or {}, timeout_s=timeout_s
    )
    return HttpModel(model, version, FORMAT, format_named(FORMAT), endpoint)
