"""The clauses of the agent protocol, each as what takes it out, and the smallest world in which that is found.

Source: design/agent.md, *Lease, fencing, gateway*, *Settling*, *Mail*. `README.md` in this folder shows the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from tests.model import agent_mail, agent_tenures, agent_world
from trajlake.runtime.agent.decide import log_suffices, settle_step
from trajlake.runtime.leases import generations
from trajlake.runtime.mailbox.mail_events import event_of
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import History

Effects, Tenures, Mail = agent_world.Bounds, agent_tenures.Bounds, agent_mail.Bounds
Bounds = Effects | Tenures | Mail


class Clause(NamedTuple):
    """`without` replaces decisions of the model's `Rules`; `harm` is how the promise it keeps is broken then."""

    bounds: Bounds
    without: dict[str, Any]
    harm: str
    quick: bool = True


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def blind(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return a decision that is told something else than what is."""
    return lambda *args, **named: function(*args, **{**named, **fixed})


def by_highest_start(events: Iterable[Event], openings: Any = (), *, after: int = -1) -> History:
    """The rule before lines: an event counts unless a higher token starts at or before its number."""
    kept = {(event.sequence_number, event.fencing_token, event.hash): event for event in events}
    starts: dict[int, int] = {}
    for event in kept.values():
        if event.type in ("TaskStarted", "LeaseAcquired"):
            start = starts.get(event.fencing_token, event.sequence_number)
            starts[event.fencing_token] = min(event.sequence_number, start)
    counting: list[Event] = []
    for key in sorted(kept):
        number, token, _ = key
        higher = any(other > token and start <= number for other, start in starts.items())
        if starts.get(token, number + 1) <= number == len(counting) and not higher:
            counting.append(kept[key])
    waiting = [event for event in kept.values() if event.sequence_number > len(counting)]
    return History(
        events=counting, superseded=[], held_back=waiting, conflicts=[], duplicates=0, openings=(), line=()
    )  # fmt: skip


def believes_a_probe_at_once(doubt: Any, now_s: float) -> str:
    return settle_step(replace(doubt, timeout_s=-1e9), now_s)


def forgets_its_own_send(doubt: Any, now_s: float) -> str:
    return settle_step(replace(doubt, last_send_s=None), now_s)


def decides_for_the_person(doubt: Any, now_s: float) -> str:
    step = settle_step(doubt, now_s)
    return "not_executed" if step == "person" else step


def runs_again_when_unknown(known: str, *, is_running: bool) -> str:
    answer = generations.gateway_answer(known, is_running=is_running)  # type: ignore[arg-type]
    return "run" if answer == "unknown" else answer


def announces_doubts_only(tools: Iterable[str], gateways: dict[str, object], *, log_incomplete: bool) -> list[object]:
    return generations.gateways_to_announce(tools, gateways, log_incomplete=False)


def one_above_what_is_seen(record: int | None, seen: Iterable[int], **_: Any) -> generations.Decision:
    return generations.UseToken(max([record or 0, *seen]) + 1)


def knows_no_mail(item: Any, state: Any) -> Any:
    return event_of(item, type(state)(tenant=state.tenant, trajectory_id=state.trajectory_id))


GATEWAY, KEY, PROBE, NEITHER = ("gateway",), ("key",), ("probe",), ("neither",)
TWICE, UNKEPT = "happened twice", "not in the history"
ack, delete = generations.may_acknowledge, generations.may_delete_mail

CLAUSES: dict[str, Clause] = {
    "a token counts only on the line of the highest": Clause(
        Effects(takes=3, expiries=2), {"canonical": by_highest_start}, UNKEPT, quick=False),
    "the same, for what lands in any order": Clause(Tenures(), {"canonical": by_highest_start}, "no chain"),
    "the intent is durable before the send": Clause(
        Effects(NEITHER), {"barrier_before_send": False}, "before its intent is durable"),
    "the lease is extended after the intent's barrier": Clause(
        Effects(GATEWAY), {"barrier_before_check": False}, "whose successor was at work"),
    "the same, without a gateway": Clause(
        Effects(NEITHER), {"barrier_before_check": False}, "after a person had said"),
    "an answer older than a second is no leave to send": Clause(
        Effects(NEITHER), {"may_dispatch": always(True)}, "after a person had said"),
    "the same, before a probe": Clause(Effects(PROBE), {"may_dispatch": always(True)}, TWICE, quick=False),
    "a same-key send waits for its barrier": Clause(
        Effects(KEY, replica=True, kills=1), {"barrier_before_key": False}, "before the replica", quick=False),
    "the replica acknowledges before the send": Clause(
        Effects(KEY, hosts=(0, 1), replica=True), {"replica_before_send": False}, "before the replica"),
    "the local barrier stands beside the replica's": Clause(
        Effects(KEY, replica=True), {"local_before_send": False}, "durable here"),
    "the replica is read before anything is done": Clause(
        Effects(NEITHER, hosts=(0, 1), replica=True), {"replica_read": False}, TWICE, quick=False),
    "a successor copies frames it has not made durable": Clause(
        Effects(NEITHER, kills=1, powers=1), {"copies_unsealed": False}, "durable here"),
    "the log is read after the lease is taken": Clause(Effects(NEITHER), {"reads_after_lease": False}, TWICE),
    "who meets a higher token stops": Clause(
        Tenures(own_stores=True), {"must_stop": always(False)}, "do not count"),
    "an end is durable before it is returned": Clause(
        Effects(KEY), {"may_acknowledge": blind(ack, durable=True)}, UNKEPT),
    "it is at the replica": Clause(
        Effects(KEY, hosts=(0, 1), replica=True), {"may_acknowledge": blind(ack, replica_acknowledged=None)}, UNKEPT,
        quick=False),
    "a lease check follows": Clause(Effects(KEY), {"may_acknowledge": blind(ack, lease_checked_after=True)}, UNKEPT),
    "a recorded end is returned under an opening of one's own": Clause(
        Effects(KEY, takes=3, expiries=2), {"opens_after_end": False}, UNKEPT, quick=False),
    "an intent without result is in doubt, not unsent": Clause(
        Effects(NEITHER, kills=1), {"stage": always("unsent")}, TWICE),
    "an exception of an effect proves nothing": Clause(
        Effects(NEITHER, timeouts=1), {"outcome_of": always("not_executed")}, TWICE),
    "a doubt nobody can resolve parks": Clause(
        Effects(NEITHER, kills=1), {"settle_step": decides_for_the_person}, TWICE, quick=False),
    "only a key is sent again": Clause(Effects(NEITHER, kills=1), {"settle_step": always("key")}, TWICE, quick=False),
    "every attempt has the first one's key": Clause(Effects(KEY, kills=1), {"keeps_key": False}, TWICE, quick=False),
    "a probe's no counts after timeout and settling time": Clause(
        Effects(PROBE, kills=1), {"settle_step": believes_a_probe_at_once}, TWICE, quick=False),
    "since the later of lease and own last send": Clause(
        Effects(PROBE, timeouts=1), {"settle_step": forgets_its_own_send}, TWICE, quick=False),
    "settling begins by announcing the token": Clause(
        Effects(GATEWAY, window=True), {"gateways_to_announce": always([])}, "whose successor was at work"),
    "to every gateway, where the log may be incomplete": Clause(
        Effects(GATEWAY, hosts=(0, 1), accept_loss=True, window=True), {"gateways_to_announce": announces_doubts_only},
        "whose successor was at work"),
    "a gateway refuses lower tokens": Clause(
        Effects(GATEWAY, window=True), {"gateway_refuses": always(False)}, "whose successor was at work"),
    "a started key without a live call is unknown": Clause(
        Effects(GATEWAY, gateway_deaths=1), {"gateway_answer": runs_again_when_unknown}, TWICE),
    "until a verdict is posted for it": Clause(
        Effects(GATEWAY, gateway_deaths=1, expiries=0, retries=3), {"tells_gateway_verdicts": False},
        "still cannot say"),
    "a verdict about a running call is refused": Clause(
        Effects(GATEWAY, timeouts=2, expiries=0, retries=3), {"gateway_believes": always(True)}, TWICE, quick=False),
    "a store without a record takes a new generation": Clause(
        Tenures(losses=1), {"next_token": one_above_what_is_seen}, "one token"),
    "a generation is created only if absent": Clause(Tenures(losses=1), {"creates_only_if_absent": False}, "one token"),
    "one arbiter for all roots": Clause(Tenures(own_stores=True), {"arbiter_is_shared": False}, "one token"),
    "what is held back is no new trajectory": Clause(
        Tenures(losses=1), {"log_suffices": blind(log_suffices, held_back=False)}, "began it anew"),
    "mail is deleted after its event is durable": Clause(
        Mail(), {"may_delete_mail": blind(delete, event_durable=True)}, "never saw it"),
    "at the replica too": Clause(
        Mail(hosts=(0, 1), replica=True), {"may_delete_mail": blind(delete, replica_acknowledged=None)},
        "never saw it", quick=False),
    "and after a lease check": Clause(
        Mail(), {"may_delete_mail": blind(delete, lease_checked_after=True)}, "never saw it"),
    "an item whose id is in the log is dropped": Clause(Mail(), {"event_of": knows_no_mail}, "two events"),
}  # fmt: skip
