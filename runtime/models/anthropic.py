"""`anthropic`: any server that speaks the messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .adapter import HttpModel, format_named
from .anthropic_format import FORMAT
from .wire import Endpoint

API_VERSION: Final = "2023-06-01"


def anthropic(
    model: str,
    *,
    version: str = "",
    base_url: str = "https://api.anthropic.com/v1",
    key_env: str | None = "ANTHROPIC_API_KEY",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> HttpModel:
    """Return a model. `key_env` NAMES the environment variable with the key (None: no key); it is read at each send."""
    endpoint = Endpoint(
        url=f"{base_url.rstrip('/')}/messages",
        key_env=key_env,
        key_header="x-api-key",
        key_prefix="",
        headers={"anthropic-version": API_VERSION, **(headers or {})},
        timeout_s=timeout_s,
    )
    return HttpModel(model, version, FORMAT, format_named(FORMAT), endpoint)
