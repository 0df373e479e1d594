"""`anthropic_client`: the messages API through an `anthropic.Anthropic` client (Bedrock's and Vertex's included)."""

from __future__ import annotations

from typing import Any

from .sdk_model import SdkModel


def anthropic_client(client: Any, model: str, *, version: str = "") -> SdkModel:
    """Return a model for `journal.run(..., model=...)`. The client's own retries are turned off."""
    create = client.with_options(max_retries=0).messages.with_streaming_response.create

    def post(body: dict[str, Any]) -> Any:
        named = {name: body.pop(name) for name in ("model", "messages", "max_tokens")}
        return create(**named, extra_body=body)

    return SdkModel(model, version, "anthropic.messages/1", post)
