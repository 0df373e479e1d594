"""What all payloads share. A payload is the JSON text of one frozen struct; its type stands in the header."""

from __future__ import annotations

from typing import Any

import msgspec


class Payload(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False, gc=False
):  # fmt: skip
    """Fields of one event type. An absent field has its default; unknown fields of a later minor are kept out.

    The garbage collector does not look at them: a payload is a tree, and a long trajectory keeps thousands.

    `place` is set by importers only: where in the source the fact stands (`line 12`, or a JSON pointer).
    """

    place: str = ""


class MailStamp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which mail item became this event, who posted it and how they are known. `posted_at` is µs UTC."""

    mail_id: str
    actor: str
    posted_at: int
    actor_known_by: str = ""


Ref = int | tuple[int, int]
"""An event: its sequence number, or in a branch (up, sequence number) for an ancestor."""

Json = Any
"""A JSON tree as the value codec made it: tagged, `$`-escaped, bulk replaced by blob references."""

Amounts = dict[str, str]
"""unit -> decimal text, such as {"usd": "0.25", "turns": "3"}."""
