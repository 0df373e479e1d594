"""`openai_client`: the chat completions API through an `openai.OpenAI` client (any server, Azure included)."""

from __future__ import annotations

from typing import Any

from .sdk_model import SdkModel


def openai_client(client: Any, model: str, *, version: str = "") -> SdkModel:
    """Return a model for `journal.run(..., model=...)`. The client's own retries are turned off."""
    create = client.with_options(max_retries=0).chat.completions.with_streaming_response.create

    def post(body: dict[str, Any]) -> Any:
        # What the client has no word for goes along too: the recorded body is what is sent.
        return create(model=body.pop("model"), messages=body.pop("messages"), extra_body=body)

    return SdkModel(model, version, "openai.chat/1", post)
