"""Context: item hashes without transport keys, the running hash, and lists built by extension."""

from __future__ import annotations

import copy
import hashlib
import random
import time

import pytest

from trajlake.schemas.context import (
    ITEMS_START,
    Build,
    Builds,
    context_hash,
    context_hash_of,
    extend_items_hash,
    head_hash,
    item_hash,
    without_transport,
)
from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.events import ContextBuilt, ContextHead, Ref, RetrievedItem


def test_an_item_hash_is_sha256_of_the_canonical_message():
    text = b'{"content":"hi","role":"user"}'
    assert item_hash({"role": "user", "content": "hi"}) == hashlib.sha256(text).hexdigest()


def test_transport_keys_do_not_enter_at_any_depth_of_content():
    bare = {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "a"}]}]}
    marked = copy.deepcopy(bare) | {"cache_control": {"type": "ephemeral"}}
    marked["content"][0]["cache_control"] = {"type": "ephemeral"}
    marked["content"][0]["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    marked["content"].append({"cachePoint": {"type": "default"}})
    assert item_hash(marked) == item_hash(bare)
    assert "cache_control" in marked, "the caller's message is left as it was"


def test_arguments_keep_keys_that_look_like_transport():
    call = {"type": "tool_use", "input": {"cache_control": "no-store"}}
    assert without_transport({"content": [call]}) == {"content": [call]}
    other = {"type": "tool_use", "input": {}}
    assert item_hash({"content": [call]}) != item_hash({"content": [other]})


def test_an_empty_block_that_was_empty_before_stays():
    assert without_transport({"content": [{}, {"cache_control": 1}]}) == {"content": [{}]}


def test_the_running_hash_extends_item_by_item():
    hashes = [item_hash({"n": number}) for number in range(6)]
    for cut in range(7):
        half = extend_items_hash(ITEMS_START, hashes[:cut])
        assert extend_items_hash(half, hashes[cut:]) == extend_items_hash(ITEMS_START, hashes)
    by_hand = hashlib.sha256(f"{ITEMS_START}\n{hashes[0]}".encode()).hexdigest()
    assert extend_items_hash(ITEMS_START, hashes[:1]) == by_hand


def test_the_head_enters_last_and_every_field_of_it_counts():
    items = extend_items_hash(ITEMS_START, ["a" * 64])
    plain = ContextHead(system="1", tools="2", parameters="3", template="4", tokenizer="5")
    whole = hashlib.sha256(f"trajlake context 1\n{head_hash(plain)}\n{items}".encode()).hexdigest()
    assert context_hash(plain, items) == whole == context_hash_of(plain, ["a" * 64])
    retrieved = RetrievedItem(source="wiki", item_id="7")
    found = {context_hash(plain, items), context_hash(plain, items, [retrieved])}
    for name in ("system", "tools", "parameters", "template", "tokenizer"):
        found.add(context_hash(ContextHead(**{one: str(n) for n, one in enumerate(names(), 1) if one != name}), items))
    assert len(found) == 7


def names() -> tuple[str, ...]:
    return ("system", "tools", "parameters", "template", "tokenizer")


def test_hashes_are_golden():
    head = ContextHead(system="ab")
    assert ITEMS_START == "66a88b73a862730c41790547c50789f7fe275b98a42874c5bdc164144246829b"
    assert (
        context_hash_of(head, [item_hash({"role": "user", "content": "hi"})])
        == "096cd554e810e5334ac9b825626130984c77e6fd06b98dd40c7e62d505b4f424"
    )


def built(base: Ref | None, keep: int, *append: Ref) -> ContextBuilt:
    return ContextBuilt(context_hash="", base=base, keep=keep, append=append)


def test_append_roll_back_compaction_and_a_second_list_are_one_form():
    builds = Builds()
    builds.extend(3, built(None, 0, 1, 2))
    builds.extend(7, built(3, 2, 5, 6))  # append
    builds.extend(9, built(3, 2, 8))  # back to an earlier context, on with another item
    builds.extend(12, built(7, 4, 11))  # the list of 7 is still there
    builds.extend(20, built(None, 0, 19))  # compaction: in full
    builds.extend(30, built(12, 1, 25))
    assert builds.items(3) == [1, 2]
    assert builds.items(7) == [1, 2, 5, 6]
    assert builds.items(9) == [1, 2, 8]
    assert builds.items(12) == [1, 2, 5, 6, 11]
    assert builds.items(12, first=3) == [6, 11]
    assert builds.items(20) == [19]
    assert builds.items(30) == [1, 25]
    assert builds.items(15) == builds.items(12), "a context is in force until the next one is built"
    assert builds.items(2) == []


def test_a_branch_goes_on_from_its_parents_context():
    builds = Builds([Build((1, 3), None, 0, ((1, 1), (1, 2)), 2)])
    builds.extend(4, built((1, 3), 1, 2))
    builds.extend(6, built(4, 2, 5))
    assert builds.items(6) == [(1, 1), 2, 5]


def test_keeping_more_than_the_base_has_is_refused():
    builds = Builds()
    builds.extend(3, built(None, 0, 1, 2))
    with pytest.raises(InvalidEvent, match="ContextBuilt 5: keeps 3 items of base 3, which has 2"):
        builds.extend(5, built(3, 3))
    with pytest.raises(InvalidEvent, match="keeps 1 items of base None"):
        builds.extend(5, built(None, 1))


@pytest.mark.parametrize("seed", range(10))
def test_random_contexts_equal_plain_list_slicing(seed: int):
    chance = random.Random(seed)
    builds, lists = Builds(), {}
    for number in range(0, 600, 3):
        base = chance.choice([None, *list(lists)[-5:]]) if lists else None
        keep = chance.randint(0, len(lists[base])) if base is not None else 0
        append = tuple(range(number - chance.randint(0, 3), number))
        lists[number] = [*(lists[base][:keep] if base is not None else []), *append]
        assert builds.extend(number, built(base, keep, *append)).length == len(lists[number])
    for number, wanted in lists.items():
        first = chance.randint(0, 4)
        assert builds.items(number, first) == wanted[first:], f"seed {seed}, context {number}"


def test_ten_thousand_turns_cost_ten_thousand_turns():
    def seconds(turns: int) -> float:
        began = time.process_time()
        builds, length = Builds(), 0
        for turn in range(turns):
            at = turn * 4 + 4
            build = builds.extend(at, built(at - 4 if turn else None, length, at - 3, at - 2, at - 1))
            length = build.length
        assert len(builds.items(at)) == 3 * turns
        return time.process_time() - began

    assert seconds(10_000) < 12 * max(seconds(2_000), 0.002) + 0.05
