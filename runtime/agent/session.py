"""One trajectory in this worker's hands: recording, barriers, lease checks, serving. No I/O of its own.

Everything that may wait is a generator of requests (see `requests`); a driver performs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trajlake.schemas import blobs, values
from trajlake.schemas.blobs import PayloadT
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import DriftDetected, Payload, ProposedCall
from trajlake.schemas.ids import trajectory_key
from trajlake.schemas.keys import arguments_hash
from trajlake.schemas.limits import SALT_SIZE

from ..leases.lease import LeaseLost
from ..leases.lease_keeper import HeldLease
from ..tools import InvalidArguments, Tool
from ..wal.frame import TrajectoryInfo
from .arguments import arguments_of_text, text_of_call
from .errors import Busy, Diverged, Misuse, Unwind
from .ports import Ports
from .requests import Block, Done, Next, Start, Steps, Ticket, Wait
from .rolled import NOTHING, LeftBehind, left_behind
from .rules import rules_of
from .saving import Saving
from .table import RESUME, Table, operation_of
from .view import View

if TYPE_CHECKING:
    from trajlake.schemas.state import State

    from ..checkpoints.checkpoint import Loaded
    from .context import Item
    from .files import Files


SALTS_AT_ONCE: Final = 64


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What the journal gives every run: its tools and policy."""

    tools: Mapping[str, Tool]
    policy: Any = None
    resolvers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    replicated: frozenset[str] = frozenset()
    """Effect classes whose intents wait for the replica, beside those that the trajectory promises itself."""


class Session:
    """A trajectory under a lease. One operation at a time; not for several threads."""

    is_branch = False
    """Whether this session goes on from an ancestor's record; any other refuses the log of a branch."""

    def __init__(self, ports: Ports, setup: Setup, tenant: str, trajectory_id: str) -> None:
        self.ports, self.setup = ports, setup
        self.tenant, self.trajectory_id = tenant, trajectory_id
        self.key = trajectory_key(tenant, trajectory_id).hex()
        self.held: HeldLease | None = None
        self.acquired_at_s = 0.0
        self.events: list[Event] = []
        self.left: LeftBehind = NOTHING
        self.bases: tuple[State, ...] = ()
        self.base: Loaded | None = None
        self.base_seq: int | None = None
        self.rules = rules_of(setup.policy)
        self.files: Files | None = None
        self.saving = Saving()
        self.pins: dict[str, Any] = {}
        self._made: dict[int, Item] = {}
        self._hashes: dict[tuple[int, str, str, str], str] = {}
        self.prev = genesis(tenant, trajectory_id)
        self.next_seq = 0
        self.info = TrajectoryInfo(tenant=tenant, trajectory_id=trajectory_id, model="unknown", started_on="1970-01-01")
        self.ticket: Ticket | None = None
        self.cancel_seen = False
        self.loss_seq = -1
        self.closed_turn = False
        self.superseded_keys: frozenset[str] = frozenset()
        self.principal: str | None = None
        self.ancestors: tuple[str, ...] = ()
        self.end: Event | None = None
        self.end_shown = False
        self.view = self.new_view()
        self.table = Table(())
        self.turn = -1
        self.open_turn = -1
        self.resumed = False
        self.loop: Any = None
        self.compares_heads = False
        self.live = False
        self.begun = False
        self.unwinding: BaseException | None = None
        self.ended: tuple[str, Any, str] | None = None
        self.exhausted = False
        self.owner: Any = None
        self.owner_now: Callable[[], Any] = lambda: None
        self.wanted: Any = None
        self.asked: Callable[[], Any] | None = None
        self.tags = 0
        self.sends: dict[str, float] = {}
        self._runtime: list[Event] = []
        self._salts: list[bytes] = []
        self._at_hand: dict[str, blobs.Blob] = {}

    # -- recording -------------------------------------------------------------------------------------------------

    @property
    def token(self) -> int:
        assert self.held is not None
        return self.held.token

    def fresh(self) -> Session:
        """Return another session over the same trajectory, which holds nothing yet."""
        return Session(self.ports, self.setup, self.tenant, self.trajectory_id)

    def new_view(self) -> View:
        """Return an empty view over this trajectory."""
        return View(
            self.tenant, self.trajectory_id, inline=self.inline, hash_call=self.hash_of_proposal, left=self.left,
            ahead=self.events, bases=self.bases, made=self._made,
        )  # fmt: skip

    def use_bases(self, *states: State) -> None:
        """Fold on from these states (of a checkpoint) wherever a view stands behind one of them."""
        self.bases = self.view.bases = states

    def learn_roll_backs(self) -> None:
        """Find out what the roll-backs among the events left behind, and which turn is open."""
        self.left = left_behind(self.events)
        self.open_turn = self.turn = max(self.left.turn_of(event) for event in self.events)

    def of_turns(self, wanted: Callable[[int], bool]) -> list[Event]:
        """The events that take effect in the wanted turns, in log order; given-up ones too, as the state counts all."""
        return [event for event in self.events if wanted(self.left.turn_of(event))]

    def record(self, payload: Payload, *, turn: int | None = None) -> Steps:
        """Append one event (its blobs first) and apply it; return it. It is durable at the next barrier."""
        payload, bulk = blobs.offload_payload(payload)
        for blob in bulk:
            yield Block(partial(self.ports.blobs.put, self.tenant, blob.data))
            self._at_hand[blob.sha256] = blob
        return self.append(payload, turn=turn)

    def record_at_once(self, payload: Payload, *, turn: int | None = None) -> Event:
        """The same without requests, for what an agent does by plain assignment; bulk is stored in place."""
        payload, bulk = blobs.offload_payload(payload)
        for blob in bulk:
            self.ports.blobs.put(self.tenant, blob.data)
        return self.append(payload, turn=turn)

    def offloaded(self, payload: PayloadT) -> tuple[PayloadT, list[blobs.Blob]]:
        """Return a payload as its frame holds it, and the blobs beside it."""
        return blobs.offload_payload(payload)

    def context_differs(self, operation: str, built: Event, head: Any, stored: Any, items: Any) -> NoReturn:
        """Stop: a served model call has another context than recorded (`head`, `stored`, `items`: as they are now)."""
        del head, stored, items
        raise Diverged(self.turn, operation, f"context {built.body.context_hash[:12]}", "another context")

    def drift(self, payload: DriftDetected, event: Event | None = None, wire: Any = None) -> None:
        """Record a drift, once per trajectory and finding; it takes effect where it stands, not in the operation.

        `event` is the recorded message (None for a new one), `wire` what the code gives now.
        """
        del event, wire
        if all(event.type != "DriftDetected" or event.body != payload for event in self.events):
            self.record_at_once(payload, turn=max(self.turn, self.open_turn))

    def append(self, payload: Payload, *, turn: int | None = None) -> Event:
        """Append one event whose bulk is out; queued on return, durable at the next barrier."""
        event = self.make(payload, turn=turn)
        self.ticket = self.ports.log.append((event,), self.info, lazy=True)
        self.adopt(event)
        return event

    def make(self, payload: Payload, *, turn: int | None = None) -> Event:
        """Build the next event; nothing is queued and no number is used up."""
        return make_event(
            payload,
            tenant=self.tenant,
            trajectory_id=self.trajectory_id,
            sequence_number=self.next_seq,
            fencing_token=self.token,
            turn=self.turn if turn is None else turn,
            recorded_at=self.ports.env.now_us(),
            salt=(self._salts or self._draw_salts()).pop(),
            prev=self.prev,
        )

    def _draw_salts(self) -> list[bytes]:
        """New salts. Many are drawn at a time: each draw is a call of the system and lets other threads in."""
        drawn = self.ports.env.random_bytes(SALT_SIZE * SALTS_AT_ONCE)
        self._salts = [drawn[at : at + SALT_SIZE] for at in range(0, len(drawn), SALT_SIZE)]
        return self._salts

    def adopt(self, event: Event) -> None:
        """Make a queued (or read) event the last one of this trajectory."""
        self.events.append(event)
        if event.type == "CancelRequested":
            self.cancel_seen = True
        elif event.type == "TaskEnded":
            self.end = event
        self.prev, self.next_seq = event.hash, event.sequence_number + 1
        if self.live:
            self.view.apply(event)

    def barrier(self) -> Steps:
        """Wait until everything recorded so far is durable."""
        if self.ticket is not None:
            ticket, self.ticket = self.ticket, None
            yield Wait(ticket)

    def intent_ticket(self, effects: Iterable[str]) -> Ticket | None:
        """What tells that intents of these effect classes are durable at their level, and everything before them: here,
        and in the replica where one of the classes asks for it. What is shown to anybody later waits for both.
        """
        local: Ticket | None = getattr(self.ticket, "local", None)
        return self.ticket if local is None or not self._replicated().isdisjoint(effects) else local

    def intent_barrier(self, effects: Iterable[str]) -> Steps:
        """Wait until intents of these effect classes are durable at their level."""
        ticket = self.intent_ticket(effects)
        if ticket is not None:
            yield Wait(ticket)

    def _replicated(self) -> frozenset[str]:
        return self.setup.replicated.union(getattr(self.events[0].body, "replicated", ()))

    def checked_barrier(self, timeout_s: float = 0.0) -> Steps:
        """Barrier, then a lease check. Raises `Busy` when the lease cannot be shown to be ours."""
        if self.ticket is not None:
            ticket, self.ticket = self.ticket, None
            yield Wait(ticket)
        yield from self.check_lease(timeout_s)

    def check_lease(self, timeout_s: float = 0.0) -> Steps:
        """Ask for leave to send or to answer. Raises `Busy`."""
        held = self.held
        assert held is not None
        if held.may_send(timeout_s):
            return
        try:
            yield Block(partial(held.check_for_dispatch, timeout_s))
        except LeaseLost as error:
            raise Busy(f"trajectory {self.trajectory_id!r}: {error}") from error

    def run_body(self, call: Callable[[], Any], timeout_s: float | None = None, *, of: Any = None) -> Steps:
        """Run one user function beside the core and return its `Done`. `of`: the function it calls, if another."""
        self.tags += 1
        yield Start(self.tags, call, timeout_s, inspect.iscoroutinefunction(of or call))
        done: Done = yield Next()
        return done

    # -- bulk and arguments ----------------------------------------------------------------------------------------

    def inline(self, tree: Any) -> Any:
        """Put bulk back into a tree, from blobs; what this operation has just stored is still at hand."""
        kind = type(tree)
        if kind is not dict and kind is not list:
            return tree
        if self._at_hand and blobs.is_blob(tree) and tree["$blob"] in self._at_hand:
            return blobs.tree_of(self._at_hand[tree["$blob"]])
        return blobs.inline(tree, lambda sha256: self.ports.blobs.get(self.tenant, sha256))

    def value(self, tree: Any, what: str = "") -> Any:
        """Return the value a recorded tree stands for; what cannot be read is refused, naming `what` it is."""
        try:
            return values.from_tree(self.inline(tree))
        except InvalidValue as error:
            raise InvalidValue(f"trajectory {self.trajectory_id!r}, {what}: {error}" if what else str(error)) from None

    def hash_of_proposal(self, tool: str, call: ProposedCall, reply: int) -> str:
        """The arguments hash of a proposal as it would be passed to its tool now; "" where it would be refused."""
        named = reply, tool, call.provider_id, call.pointer
        found = self._hashes.get(named) if call.pointer else None
        if found is None:
            found = self._hashes[named] = self._hash_of(tool, call, reply)
        return found

    def _hash_of(self, tool: str, call: ProposedCall, reply: int) -> str:
        registered = self.setup.tools.get(tool)
        if registered is None:
            return ""
        try:
            bound = registered.bind(arguments_of_text(self.text_of(call, reply)))
            return arguments_hash(values.to_tree(bound))
        except (InvalidArguments, InvalidValue):
            return ""

    def text_of(self, call: ProposedCall, reply: int) -> str:
        """The argument text of a recorded proposal, as its model emitted it."""
        if call.arguments is not None:
            return str(self.value(call.arguments))
        return text_of_call(call, lambda: self.raw_of(reply))

    def raw_of(self, reply: int) -> Any:
        """Return the raw text of a recorded reply."""
        return self.value(self.event_at(reply).body.raw)

    def event_at(self, sequence_number: int) -> Event:
        """Return a canonical event of this trajectory by its number."""
        event = self.events[sequence_number] if sequence_number < len(self.events) else None
        if event is None or event.sequence_number != sequence_number:
            event = next(one for one in self.events if one.sequence_number == sequence_number)
        return event

    # -- serving ---------------------------------------------------------------------------------------------------

    def enter_turn(self, turn: int, events: list[Event]) -> None:
        """Begin to serve one turn (-1: the prologue) from its recorded events."""
        self.turn = turn
        self.begun = False
        served = [event for event in events if serves(event) and self.left.answers(event)]
        self.table = Table(served)
        first = served[0].sequence_number if served else None
        numbers = {event.sequence_number for event in served}
        self._runtime = [event for event in events if event.sequence_number not in numbers]
        while self._runtime and (first is None or self._runtime[0].sequence_number < first):
            self.view.apply(self._runtime.pop(0))

    def serve(self, events: list[Event]) -> None:
        """Apply the recorded events of an operation, and the runtime's own that stand before its last one."""
        self.begun = True
        if not events:
            return
        last = max(event.sequence_number for event in events)
        before = [event for event in self._runtime if event.sequence_number < last]
        self._runtime = self._runtime[len(before) :]
        for event in sorted([*before, *events], key=lambda event: event.sequence_number):
            self.view.apply(event)

    def go_live(self, operation: str) -> None:
        """Everything recorded has been served: from here on operations run, and are recorded.

        `operation` names the first that runs; a replay stops here instead.
        """
        del operation
        self.begun = True
        if not self.live:
            for event in self._runtime:
                self.view.apply(event)
            self._runtime = []
            self.live = True

    def check_usable(self, operation: str) -> None:
        """An operation begins. Raise where none may: after the end, or after the agent swallowed an unwinding."""
        self._at_hand = {}
        if self.owner_now() != self.owner:
            raise Misuse(
                f"{operation}: a trajectory belongs to the thread or task that runs it; use turn.tools to go wide"
            )
        if self.unwinding is not None:
            advice = "catch Exception instead of BaseException"
            if not isinstance(self.unwinding, Unwind):
                advice = "turn.spawn raised it, and only a resume may go on with that child"
            raise Misuse(
                f"{operation}: the agent caught {type(self.unwinding).__name__}, which must pass through; {advice}"
            ) from self.unwinding
        if self.ended is not None:
            raise Misuse(f"{operation}: the trajectory has ended ({self.ended[0]}); nothing may follow")

    def has_ended(self) -> bool:
        """Whether the log holds the end."""
        return self.end is not None

    def cancelled(self) -> bool:
        """Whether the log holds a request to stop."""
        return self.cancel_seen

    def check_served(self) -> None:
        """Raise `Diverged` when the turn is left although a recorded operation of it was not asked for."""
        missing = self.table.missing()
        if missing is not None:
            (kind, name), event = missing
            raise Diverged(
                self.turn, f"{kind} {name}".strip(), f"event {event.sequence_number}", "not asked for", "missing"
            )

    def unwind(self, how: Unwind) -> Unwind:
        """Note that the agent is being left, and return the exception to raise."""
        self.unwinding = how
        return how


_PARTS: Final = frozenset("ModelReplied Authorized ToolIntent ToolResult ToolSettled TaskEnded".split())


def serves(event: Event) -> bool:
    """Whether an event belongs to an operation of the agent."""
    if event.type == "ApprovalRequested":
        return bool(event.body.tool != RESUME)
    return event.type in _PARTS or operation_of(event) is not None
