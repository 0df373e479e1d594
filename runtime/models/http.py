"""`http`: a model behind any URL, in a known format or in one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .adapter import Format, HttpModel, format_named
from .openai_format import FORMAT
from .protocol import Context, Response, ToolSpec
from .wire import Endpoint

Build = Callable[[str, Context, Sequence[ToolSpec]], bytes]
Read = Callable[[bytes], Response]


def http(
    model: str,
    url: str,
    *,
    version: str = "",
    format: str = FORMAT,  # noqa: A002 - the name of the model protocol's attribute
    build: Build | None = None,
    read: Read | None = None,
    key_env: str | None = None,
    key_header: str = "Authorization",
    key_prefix: str = "Bearer ",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> HttpModel:
    """Return a model that POSTs JSON to exactly `url`.

    `format` is a known one, or one's own name together with `build(model, context, tools) -> body` and
    `read(body) -> Response`, both pure; such a format does not stream. `key_env` NAMES the environment variable.
    """
    if (build is None) is not (read is None):
        raise ValueError("a format of one's own needs both build= and read=")
    chosen = Format(build, read) if build is not None and read is not None else format_named(format)
    endpoint = Endpoint(
        url=url,
        key_env=key_env,
        key_header=key_header,
        key_prefix=key_prefix,
        headers=headers or {},
        timeout_s=timeout_s,
    )
    return HttpModel(model, version, format, chosen, endpoint)
