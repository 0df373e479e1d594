"""The agent protocol, explored state by state; each clause of it taken out is found, by the shortest way to the harm.

The models ask the product's own decisions (`runtime/leases/generations.py`, `runtime/agent/decide.py`,
`mail_events.event_of`,
`schemas.history.canonical`, `schemas.state`), over real events.
`README.md` says what they leave out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.model import agent_effects, agent_mail, agent_tenures, agent_world
from tests.model.agent_clauses import CLAUSES, GATEWAY, KEY, NEITHER, PROBE, Bounds, Effects, Mail, Tenures
from tests.model.search import Found, search


def short(bounds: Bounds) -> str:
    """What differs from the smallest world of its kind."""
    least = type(bounds)()
    told = [f"{name}={value}" for name, value in bounds._asdict().items() if value != getattr(least, name)]
    return " ".join([type(bounds).__module__.rpartition("_")[2], *told]).replace("'", "")


def explore(bounds: Bounds, without: dict[str, Any] | None = None, limit: int = 2_000_000) -> Found:
    model: Any
    goal = None
    if isinstance(bounds, Effects):
        model = agent_effects.EffectModel(bounds, agent_world.Rules(**without or {}))
        begin: Any = agent_world.first(bounds)
        goal = model.done if bounds in LIVELY else None
    elif isinstance(bounds, Tenures):
        model, begin = (
            agent_tenures.TenureModel(bounds, agent_tenures.Rules(**without or {})),
            agent_tenures.first(bounds),
        )
    else:
        model, begin = agent_mail.MailModel(bounds, agent_mail.Rules(**without or {})), agent_mail.first(bounds)
    begun = time.process_time()
    found = search(begin, model.steps, model.broken, goal, limit)
    print(f"{short(bounds)}: {found.states:,} states, {time.process_time() - begun:.1f} s of processor time")
    for place, label in enumerate(found.path):
        print(f"{place + 1:4} {label}")
    return found


def check_holds(bounds: Bounds) -> None:
    found = explore(bounds)
    assert (found.broken, found.stuck, found.whole) == (None, 0, True), found.path


SMALL: list[Bounds] = [
    Effects(GATEWAY, window=True), Effects(KEY), Effects(PROBE, expiries=0, kills=1), Effects(NEITHER),
    Tenures(losses=1, takes=2), Tenures(own_stores=True), Mail(kills=0),
]  # fmt: skip
LONG: list[Bounds] = [
    Effects(GATEWAY, expiries=0, gateway_deaths=1), Effects(GATEWAY, kills=1, window=True),
    Effects(GATEWAY, timeouts=2, expiries=0, retries=3), Effects(GATEWAY, hosts=(0, 1), accept_loss=True, window=True),
    Effects(("gateway", "key"), kills=1), Effects(("neither", "gateway")),
    Effects(KEY, kills=1, losses=1), Effects(KEY, hosts=(0, 1), replica=True, kills=1, powers=1),
    Effects(KEY, takes=3, expiries=2),
    Effects(PROBE, kills=1, powers=1, losses=1), Effects(PROBE, timeouts=1, losses=1),
    Effects(NEITHER, kills=1), Effects(NEITHER, hosts=(0, 1), replica=True),
    Tenures(losses=1), Tenures(losses=2, appends=2), Tenures(own_stores=True, hosts=(0, 1, 2)),
    Mail(), Mail(hosts=(0, 1), replica=True, kills=0),
]  # fmt: skip
SOAK: list[Bounds] = [
    Effects(GATEWAY, kills=1, gateway_deaths=1), Effects(KEY, kills=1, powers=1, losses=1),
    Effects(GATEWAY, kills=1, powers=1, takes=3, expiries=2), Effects(GATEWAY, kills=1, window=True, gateway_deaths=1),
    Effects(GATEWAY, hosts=(0, 1), replica=True, kills=1, losses=1),
    Effects(GATEWAY, hosts=(0, 0, 1), replica=True, takes=3),
    Effects(PROBE, kills=1, powers=1, takes=3, expiries=2), Effects(NEITHER, powers=1, losses=1),
    Effects(("gateway", "neither"), kills=1, powers=1), Tenures(hosts=(0, 0, 1), losses=1), Tenures(takes=4, appends=2),
    Mail(hosts=(0, 0, 1), replica=True, expiries=2), Mail(hosts=(0, 1), replica=True),
]  # fmt: skip
LIVELY: list[Bounds] = [Effects(GATEWAY, expiries=0, gateway_deaths=1), Effects(KEY, kills=1, losses=1)]
"""Worlds in which it is also checked that from every state the end can still be reached."""


@pytest.mark.parametrize("bounds", SMALL, ids=short)
def test_the_agent_protocol_holds_in_every_order_of_steps_pauses_and_take_overs(bounds: Bounds) -> None:
    check_holds(bounds)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bounds", LONG, ids=short)
def test_the_agent_protocol_holds_with_crashes_two_hosts_and_two_calls(bounds: Bounds) -> None:
    check_holds(bounds)


@pytest.mark.soak
@pytest.mark.parametrize("bounds", SOAK, ids=short)
def test_the_agent_protocol_holds_in_a_large_world(bounds: Bounds) -> None:
    found = explore(bounds, limit=4_000_000)
    assert (found.broken, found.stuck) == (None, 0), found.path


QUICK = [name for name, clause in CLAUSES.items() if clause.quick]


def check_found(name: str) -> None:
    bounds, without, harm, _ = CLAUSES[name]
    found = explore(bounds, without)
    assert found.broken is not None, f"{found.states} states and no harm"
    assert harm in found.broken, found.path


@pytest.mark.parametrize("name", QUICK)
def test_a_clause_taken_out_is_found(name: str) -> None:
    check_found(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CLAUSES.keys() - set(QUICK)))
def test_a_clause_taken_out_is_found_in_a_larger_world(name: str) -> None:
    check_found(name)


@pytest.mark.parametrize("tools", [pytest.param(PROBE, marks=pytest.mark.long), NEITHER], ids=["probe", "neither"])
def test_the_documented_window_is_all_that_a_gateway_would_close(tools: tuple[str, ...]) -> None:
    """A sender paused between its last check and its send: with a gateway it is refused (above), else it acts late."""
    found = explore(Effects(tools, window=True))
    assert found.broken is not None
    assert "the lease of 0 runs out" in found.path


def test_the_table_in_the_readme_names_every_clause() -> None:
    page = (Path(__file__).parent / "README.md").read_text()
    missing = [name for name in CLAUSES if f"| {name} |" not in page]
    assert not missing
