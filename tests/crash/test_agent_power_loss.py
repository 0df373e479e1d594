"""Power loss under a running agent, on the real journal, leases and blobs over a machine in memory.

At every moment at which the outside world hears or tells something, the machine is copied as a power loss would leave
it; each copy is then resumed to the end, against the world as it was at that moment.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faulty_env import FaultyEnv
from trajlake.runtime import Call, Journal
from trajlake.runtime.models import scripted
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.chain import verify
from trajlake.schemas.history import canonical

ORDERS = ("a", "b", "c")
BULK = "x" * 40_000


class World:
    """Charges by key, and what the user was shown; `moment` is called whenever either changes."""

    def __init__(self, charges: dict[str, int] | None = None, shown: list[str] | None = None) -> None:
        self.charges = dict(charges or {})
        self.shown = list(shown or [])
        self.moment: Any = lambda: None

    def charge(self, key: str) -> None:
        self.moment()
        self.charges[key] = self.charges.get(key, 0) + 1
        self.moment()

    def show(self, text: str) -> None:
        self.shown.append(text)
        self.moment()


def run(env: FaultyEnv, world: World) -> Any:
    """One process on this machine, to the end of the task."""
    with Journal.open("/root", env=env) as journal:

        @journal.tool(effect="idempotent")
        def charge(order: str, note: str, *, call: Call) -> str:
            if call.key not in world.charges:
                world.charge(call.key)
            return f"charged {order} {note}"

        calls = [("charge", {"order": order, "note": BULK}) for order in ORDERS]
        model = scripted([[calls[0]], calls[1:], "done"])

        def agent(t: Any) -> None:
            t.context.user("charge them")
            for turn in t.turns():
                reply = turn.model()
                world.show(f"reply {turn.number}")
                results = turn.tools(reply.calls)
                t.vars["n"] = t.vars.get("n", 0) + len(results)
                if not reply.calls:
                    t.finish(t.vars["n"])
                    world.show("end")

        return journal.run(agent, "t", task="charge", model=model)


def images_of(seed: int, *, sync_works: bool) -> list[tuple[FaultyEnv, World]]:
    """Run once; return the machine and the world at each moment, after a power loss."""
    env = FaultyEnv(seed, sync_works=sync_works)
    world = World()
    images: list[tuple[FaultyEnv, World]] = []

    def moment() -> None:
        picked = None if len(images) % 2 else seed + len(images)
        images.append((env.crash_image(picked), World(world.charges, world.shown)))

    world.moment = moment
    assert run(env, world).result == len(ORDERS)
    moment()
    return images


def check(image: FaultyEnv, world: World) -> None:
    """Resume on the machine that is left; nothing may be charged twice, and nothing that was shown may be lost."""
    log = RootLog(Journal.open("/root", env=image).root)
    survived = canonical(log.read("default", "t", None).events).events
    replies = sum(event.type == "ModelReplied" for event in survived)
    assert replies >= sum(text.startswith("reply") for text in world.shown), "a reply that was shown is gone"
    if "end" in world.shown:
        assert any(event.type == "TaskEnded" for event in survived), "an end that was shown is gone"
    intents = {event.body.key for event in survived if event.type == "ToolIntent"}
    assert intents.issuperset(world.charges), "a charge has no durable intent"
    assert run(image, world).result == len(ORDERS)
    assert sorted(world.charges.values()) == [1] * len(ORDERS)
    assert verify(canonical(log.read("default", "t", None).events).events) == []


def check_all(images: list[tuple[FaultyEnv, World]]) -> None:
    for image, world in images:
        check(image, world)


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_survives_power_loss_at_every_moment_the_world_can_see(seed: int) -> None:
    images = images_of(seed, sync_works=True)
    assert len(images) >= 10
    check_all(images)


def test_without_working_syncs_the_same_run_loses_what_was_shown() -> None:
    images = images_of(0, sync_works=False)
    with pytest.raises(AssertionError, match=r"gone|no durable intent"):
        check_all(images)
