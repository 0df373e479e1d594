"""Prompts that repeat: each message is one event, and the context says exactly what was shown."""

from __future__ import annotations

import json
import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from trajlake.ingest.formats.build import Trajectory
from trajlake.ingest.formats.chat_shapes import Said
from trajlake.ingest.formats.contract import Item, Loss
from trajlake.ingest.formats.prompts import PromptLog
from trajlake.schemas.context import context_hash_of, item_hash
from trajlake.schemas.events import ContextBuilt, ImportSource, MessageAdded


def say(text: str, role: str = "user") -> Said:
    return Said(role, {"role": role, "content": text}, text)


def started() -> tuple[PromptLog, list[Item]]:
    items: list[Item] = []
    trajectory = Trajectory("t/x", ImportSource(format="t", session="x"), items.append, Loss())
    return PromptLog(trajectory), items


def reply(log: PromptLog, text: str) -> None:
    said = say(text, "assistant")
    log.reply(said, json.dumps(said.wire), at=0, place="p", format="t/1")


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), min_size=1, max_size=6))
@settings(max_examples=200)
def test_whatever_is_shown_the_context_is_that_and_no_message_is_written_twice(prompts: list[list[str]]) -> None:
    log, items = started()
    for prompt in prompts:
        log.show([say(text) for text in prompt], 0, "p")
        reply(log, "done")
    events = [item.payload for item in items]
    built = [event for event in events if isinstance(event, ContextBuilt)]
    for event, prompt in zip(built, prompts, strict=True):
        assert event.context_hash == context_hash_of(event.head, [item_hash(say(text).wire) for text in prompt])
    written = [event.wire["content"] for event in events if isinstance(event, MessageAdded)]
    for text in set(written):
        assert written.count(text) == max(prompt.count(text) for prompt in prompts)


def test_a_window_that_slides_over_a_long_conversation_stays_fast() -> None:
    log, _ = started()
    texts = [f"m{number}" for number in range(1_500)]
    random.Random(7).shuffle(texts)
    begun = time.process_time()
    for end in range(500, 1_500, 2):
        log.show([say(text) for text in texts[end - 500 : end]], 0, "p")
        reply(log, f"r{end}")
    assert time.process_time() - begun < 30
