"""Formats that write the whole prompt at every model call: each message becomes one event, however often it is shown.

A prompt is compared with the context as it stands. What both begin with is kept; a message that stands in an
earlier event is recalled from there; only what is new becomes an event, so the import is linear in what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from trajlake.schemas.context import item_hash
from trajlake.schemas.events.action import ResultStatus

from .build import Proposed, Trajectory, record_tree
from .chat_shapes import Said


class Pooled:
    """A message that is read only when it is new: `key` is known, `read` gives the message itself."""

    __slots__ = ("key", "read")

    def __init__(self, key: str, read: Callable[[], Said]) -> None:
        self.key = key
        self.read = read


class _Held(NamedTuple):
    number: int
    digest: str


class PromptLog:
    """The context of one trajectory, by what each item says. Every item of it goes through here."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self._keys: list[str] = []
        self._numbers: list[int] = []
        """Key and event of each item of the context as it stands."""
        self._in_use: set[int] = set()
        self._known: dict[str, list[_Held]] = {}

    def show(self, prompt: Sequence[Said | Pooled], at: int | None, place: str | Sequence[str]) -> bool:
        """Make the context say exactly `prompt`; `place` is that of all, or of each. Returns whether it went back."""
        keys = [said.key for said in prompt]
        same = min(len(keys), len(self._keys))
        if keys[:same] != self._keys[:same]:
            same = next(n for n, pair in enumerate(zip(keys, self._keys, strict=False)) if pair[0] != pair[1])
        went_back = same < len(self._keys)
        if went_back:
            self.trajectory.rewind(same)
            self._cut(same)
        for index in range(same, len(keys)):
            if not self._recalled(keys[index]):
                said = prompt[index]
                where = place if isinstance(place, str) else place[index]
                self._new(said if isinstance(said, Said) else said.read(), at, where)
        return went_back

    def add(self, said: Said, at: int | None, place: str, **more: Any) -> None:
        """Put one message behind the context: recalled if an earlier event holds it, else an event of its own."""
        if not self._recalled(said.key):
            self._new(said, at, place, **more)

    def _recalled(self, key: str) -> bool:
        known = self._known.get(key)
        if not known:
            return False
        held = next((one for one in known if one.number not in self._in_use), None)
        if held is None:
            return False
        self.trajectory.recall(held.number, held.digest)
        self._put(key, held.number)
        return True

    def _new(self, said: Said, at: int | None, place: str, **more: Any) -> None:
        if said.role == "tool" and self.answer(said, at, place, **more):
            return
        if said.role == "user" and isinstance(said.text, str):
            self.trajectory.set_task(said.text)
        if said.role == "assistant":
            self.trajectory.loss.note("assistant message that no recorded reply made")
        number = self.trajectory.message(said.role or "user", said.wire, at=at, place=place)
        self._note(said.key, number, said.wire)

    def answer(self, said: Said, at: int | None, place: str, *, call: Proposed | None = None, **more: Any) -> bool:
        """Add a tool's answer as the result of `call`, else of the call it names; False if no open call has that id."""
        if call is not None:
            self.trajectory.close_call(call)
        else:
            call = self.trajectory.take_call(said.call_id)
        if call is None:
            return False
        status: ResultStatus = "error" if said.failed else "ok"
        plain = isinstance(said.wire, dict) and set(said.wire) == {"role", "tool_call_id", "content"}
        more.setdefault("status", status)
        number = self.trajectory.result(
            said.call_id, said.output, said.wire, at=at, place=place, call=call, keep_wire=not plain, **more
        )
        assert number is not None
        self._note(said.key, number, said.wire)
        return True

    def reply(self, said: Said, raw: str, *, at: int | None, place: str, **more: Any) -> int:
        """Add a model's reply to the context as it stands."""
        number = self.trajectory.reply(
            raw, said.wire, calls=said.calls, at=at, place=place, keep_wire=more.pop("keep_wire", True), **more
        )
        self._note(said.key, number, said.wire)
        return number

    def holds(self, key: str) -> bool:
        """Return whether some event holds a message with this key."""
        return key in self._known

    def note(self, said: Said, number: int) -> None:
        """Take note of an item that the caller has added to the trajectory itself."""
        self._note(said.key, number, said.wire)

    def compacted(self, summary: str | None, keep: int, at: int | None, place: str, **more: Any) -> None:
        """A summary took the place of what stands behind the first `keep` items of the context."""
        number = self.trajectory.compacted(summary, keep=keep, at=at, place=place, **more)
        self._cut(keep)
        if summary is not None:
            wire = {"role": "user", "content": summary}
            self._note(Said("user", wire, summary).key, number, wire)

    def _cut(self, length: int) -> None:
        self._in_use.difference_update(self._numbers[length:])
        del self._keys[length:]
        del self._numbers[length:]

    def _put(self, key: str, number: int) -> None:
        self._keys.append(key)
        self._numbers.append(number)
        self._in_use.add(number)

    def _note(self, key: str, number: int, wire: Any) -> None:
        self._put(key, number)
        self._known.setdefault(key, []).append(_Held(number, item_hash(record_tree(wire))))
