"""Formats that write the whole prompt at every model call: each message becomes one event, however often it is shown.

A prompt is compared with the context as it stands. What both begin with is kept; a message that stands in an
earlier event is recalled from there; only what is new becomes an event, so the import is linear in what is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from trajlake.schemas.context import item_hash
from trajlake.schemas.events.action import ResultStatus

from .build import Proposed, Trajectory, record_tree
from .chat_shapes import Said


class _Held(NamedTuple):
    number: int
    digest: str


class PromptLog:
    """The context of one trajectory, by what each item says. Every item of it goes through here."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self._shown: list[tuple[str, int]] = []
        self._known: dict[str, list[_Held]] = {}

    def show(self, prompt: Iterable[tuple[Said, str]], at: int | None) -> bool:
        """Make the context say exactly `prompt`, given as (message, place). Returns whether it went back."""
        items = list(prompt)
        same = 0
        while same < len(items) and same < len(self._shown) and items[same][0].key == self._shown[same][0]:
            same += 1
        went_back = same < len(self._shown)
        if went_back:
            self.trajectory.rewind(same)
            del self._shown[same:]
        for said, place in items[same:]:
            self.add(said, at, place)
        return went_back

    def add(self, said: Said, at: int | None, place: str, **more: Any) -> None:
        """Put one message behind the context: recalled if an earlier event holds it, else an event of its own."""
        key = said.key
        in_use = {number for _, number in self._shown}
        held = next((one for one in self._known.get(key, ()) if one.number not in in_use), None)
        if held is not None:
            self.trajectory.recall(held.number, held.digest)
            self._shown.append((key, held.number))
            return
        if said.role == "tool" and self.answer(said, at, place, **more):
            return
        if said.role == "user" and isinstance(said.text, str):
            self.trajectory.set_task(said.text)
        if said.role == "assistant":
            self.trajectory.loss.note("assistant message that no recorded reply made")
        number = self.trajectory.message(said.role or "user", said.wire, at=at, place=place)
        self._note(key, number, said.wire)

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

    def note(self, said: Said, number: int) -> None:
        """Take note of an item that the caller has added to the trajectory itself."""
        self._note(said.key, number, said.wire)

    def compacted(self, summary: str | None, keep: int, at: int | None, place: str, **more: Any) -> None:
        """A summary took the place of what stands behind the first `keep` items of the context."""
        number = self.trajectory.compacted(summary, keep=keep, at=at, place=place, **more)
        del self._shown[keep:]
        if summary is not None:
            wire = {"role": "user", "content": summary}
            self._note(Said("user", wire, summary).key, number, wire)

    def _note(self, key: str, number: int, wire: Any) -> None:
        self._shown.append((key, number))
        self._known.setdefault(key, []).append(_Held(number, item_hash(record_tree(wire))))
