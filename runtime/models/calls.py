"""Reading any model's body, and sending under asyncio."""

from __future__ import annotations

import asyncio

from .adapter import format_named
from .protocol import Delta, Model, Response


def read_response(model: Model | str, body: bytes) -> Response:
    """Read a response body by the model's own `read`, else by the name of its format. Pure.

    Raises `ModelError` for a body that is none of the format, ValueError for a format nobody knows.
    """
    own = getattr(model, "read", None)
    if own is not None:
        response: Response = own(body)
        return response
    return format_named(model if isinstance(model, str) else model.format).read(body)


async def asend(model: Model, request: bytes, on_delta: Delta | None = None) -> bytes:
    """Make one attempt without blocking the loop: `model.asend` if there is one, else `send` in a worker thread.

    `on_delta` is called in the loop. A cancelled wait leaves the attempt running: its spend is unknown, not zero.
    """
    own = getattr(model, "asend", None)
    if own is not None:
        body: bytes = await own(request, on_delta)
        return body
    if on_delta is None:
        return await asyncio.to_thread(model.send, request, None)
    loop, hand_over = asyncio.get_running_loop(), on_delta
    return await asyncio.to_thread(model.send, request, lambda text: _in_loop(loop, hand_over, text))


def _in_loop(loop: asyncio.AbstractEventLoop, on_delta: Delta, text: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(on_delta, text)
