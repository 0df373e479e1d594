"""A checkpoint bounds what a resume decodes and folds; without a good one everything is folded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime.models import scripted
from trajlake.schemas import envelope
from trajlake.schemas.envelope import Event

from .conftest import Bench, Died

TURNS = 120


class EveryTen:
    version = "1"
    checkpoint_every_turns = 10

    def __call__(self, call: Any, state: Any) -> Any:
        from trajlake.runtime import Allow

        return Allow()


def lives(bench: Bench, monkeypatch: pytest.MonkeyPatch, prepare: Any = None) -> tuple[Any, int]:
    """Crash near the end of a trajectory that compacts its context, resume it; (outcome, events decoded meanwhile)."""
    crashes = True
    decoded: list[str] = []

    def agent(t: Any) -> None:
        t.context.system("be brief")
        for turn in t.turns(max=TURNS):
            if turn.number == TURNS - 1:
                if crashes:
                    raise Died
                decoded.append("entered")
                t.finish([t.vars["n"], len(t.context.items), t.state.execution.turn])
                break
            turn.tools(turn.model().calls)
            t.vars["n"] = turn.number
            if turn.number % 20 == 19:
                turn.compact(keep=1, summary=f"{turn.number} turns are done")

    def run() -> Any:
        journal = bench.fresh(policy=EveryTen())

        @journal.tool(effect="read")
        def look(i: int) -> int:
            return i

        return journal.run(agent, "t", task=1, model=scripted(lambda context: [("look", {"i": context.turn})]))

    with pytest.raises(Died):
        run()
    bench.close()
    if prepare is not None:
        prepare()
    crashes = False
    decode = envelope.decode_payload

    def counted(name: str, payload: bytes) -> Any:
        decoded.append(name)
        return decode(name, payload)

    with monkeypatch.context() as patch:
        patch.setattr(envelope, "decode_payload", counted)
        outcome = run()
    return outcome, decoded.index("entered")


def events_before_the_crash(bench: Bench) -> list[Event]:
    found = bench.events()
    return found[: next(place for place, event in enumerate(found) if event.fencing_token > 1)]


def test_what_is_decoded_at_a_resume_follows_the_checkpoint_not_the_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, decoded = lives(bench, monkeypatch)
    assert outcome.result == [TURNS - 2, 2 + 2 * 19, TURNS - 1]
    events = len(events_before_the_crash(bench))
    assert events > 600
    # What came after the checkpoint, and the items in force with their calls: 87 of 733 when this was written.
    assert decoded < events / 4, f"{decoded} of {events} events were decoded"


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_without_a_good_checkpoint_everything_is_folded_and_the_agent_sees_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    def prepare() -> None:
        roots = {event.body.root for event in bench.events() if event.type == "CheckpointSaved"}
        for path in [one for one in Path(bench.folder / "root").rglob("*") if one.name in roots and one.is_file()]:
            path.unlink() if harm == "gone" else path.write_bytes(b"{}")

    outcome, decoded = lives(bench, monkeypatch, prepare)
    assert outcome.result == [TURNS - 2, 2 + 2 * 19, TURNS - 1]
    assert decoded > len(events_before_the_crash(bench))
