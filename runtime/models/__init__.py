"""Models: one protocol, four adapters over the standard library, readers of provider formats.

from trajlake.runtime.models import anthropic, http, openai_chat, scripted
"""

from __future__ import annotations

from .anthropic import anthropic
from .calls import asend, read_response
from .http import http
from .openai_chat import openai_chat
from .protocol import Context, Delta, Model, ModelError, Response, ToolSpec, result_item
from .scripted import ScriptedCall, ScriptedReply, scripted

__all__ = [
    "Context",
    "Delta",
    "Model",
    "ModelError",
    "Response",
    "ScriptedCall",
    "ScriptedReply",
    "ToolSpec",
    "anthropic",
    "asend",
    "http",
    "openai_chat",
    "read_response",
    "result_item",
    "scripted",
]
