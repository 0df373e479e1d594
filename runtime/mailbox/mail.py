"""Mail: what other processes tell a trajectory. Source: design/agent.md, *Mail*.

An item is created once, durably, by anybody; only the lease holder reads it, turns it into one event
(`mail_events.event_of`) and deletes it after that event is durable and a lease check made after that has succeeded
(`generations.may_delete_mail`). Implementations pass `tests/runtime/conformance/test_mail_store.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, Protocol, get_args

import msgspec

from trajlake.schemas.events import MailStamp
from trajlake.schemas.ids import check_tenant, check_trajectory_id
from trajlake.schemas.values import plain_text

MailKind = Literal["approval", "cancel", "result", "settle", "steer"]
KINDS: Final[tuple[str, ...]] = get_args(MailKind)

ITEM_MAX: Final = 64 * 1024 * 1024
"""Largest item (bytes of JSON) that is accepted: it is read whole by the worker."""

_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class MailError(Exception):
    """An item cannot be posted or read; its text is one line fit for a user."""


class MailRefused(MailError):
    """The input is wrong: nothing was posted."""


class MailConflict(MailError):
    """An item of this id is already waiting, with other contents: use a new id."""


class MailItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item. `posted_at` is µs UTC. `subject` and `body` by kind:

    ========  ==================================  ====================================================
    approval  approval id, or the action's id     decision "granted" | "denied", because, arguments_hash
    cancel    ""                                  because
    result    action id, or the provider's id     status "ok" | "error", output, error
    settle    action id                           verdict "executed" | "not_executed", because, output (absent: lost)
    steer     ""                                  text, or wire (a message in the provider's shape)
    ========  ==================================  ====================================================

    Outputs are trees of the value codec (`schemas.values.to_tree`).
    """

    id: str
    tenant: str
    trajectory_id: str
    kind: MailKind
    subject: str = ""
    body: dict[str, Any] = {}
    actor: str = ""
    actor_known_by: str = ""
    posted_at: int = 0

    @property
    def stamp(self) -> MailStamp:
        """What the event that this item becomes carries of it."""
        return MailStamp(
            mail_id=self.id,
            actor=plain_text(self.actor),
            posted_at=self.posted_at,
            actor_known_by=plain_text(self.actor_known_by),
        )


class MailStore(Protocol):
    """Where items wait. Any thread and process may call; any error but those named means *unknown*: post again."""

    def post(self, item: MailItem) -> bool:
        """Create the item, durable on return. False: this very item was there already. Raises `MailConflict`."""
        ...

    def waiting(self, tenant: str, trajectory_id: str) -> list[MailItem]:
        """Every item of the trajectory, in the order of (posted_at, id). A damaged one raises `MailError`."""
        ...

    def delete(self, item: MailItem) -> None:
        """Remove the item; none there is fine. See the module's rule for when."""
        ...

    def trajectories(self) -> Iterator[tuple[str, str]]:
        """(tenant, trajectory id) of every trajectory that has mail waiting."""
        ...


def encode_item(item: MailItem) -> bytes:
    """Return the stored text of an item; raise `MailRefused` for one outside the grammar or over `ITEM_MAX`."""
    check_tenant(item.tenant)
    check_trajectory_id(item.trajectory_id)
    if _ID.fullmatch(item.id) is None:
        raise MailRefused(f"mail id {ascii(item.id[:40])}: must be 1-128 characters of A-Z a-z 0-9 . _ -, no dot first")
    if item.kind not in KINDS:
        raise MailRefused(f"mail kind {ascii(item.kind)}: must be one of {', '.join(KINDS)}")
    try:
        text = msgspec.json.encode(item)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise MailRefused(f"mail item {item.id}: body cannot be written as JSON ({error})") from None
    if len(text) > ITEM_MAX:
        raise MailRefused(
            f"mail item {item.id}: {len(text)} bytes, at most {ITEM_MAX}; put the bulk in a file and name it"
        )
    return text


_decoder: Final = msgspec.json.Decoder(MailItem)


def decode_item(text: bytes, where: str) -> MailItem:
    """Return the item that `text` holds, or raise `MailError` naming `where`."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise MailError(f"{where}: not a mail item ({error}); move it away, or post it again") from None
