"""Model of effects: workers that pause and die between any two steps, a lease, a gateway, tools, a replica, a person.

One trajectory makes its calls one after the other. Each worker runs the protocol of `runtime/agent`; every decision in
it is the project's own, held in `Rules` so that a test can take one out. A pause is a step that is not taken while the
lease runs out; time passes in steps as long as a message can be under way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.model.agent_book import NAME, NOBODY, NONE, TENANT, Book, Events
from tests.model.agent_outside import Outside
from tests.model.agent_world import Bounds, Message, Rules, Steps, Worker, World, put
from trajlake.runtime.agent import decide
from trajlake.runtime.leases import generations
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.mailbox.mail_events import Drop
from trajlake.schemas.events import LeaseReleased, TaskEnded, ToolIntent, ToolResult, ToolSettled

TIMEOUT_S, SETTLE_AFTER_S = 50.0, 10.0
BOUND_S = TIMEOUT_S + SETTLE_AFTER_S
HELD_S = TIMEOUT_S + generations.DISPATCH_MARGIN_S
"""How far an extension before a dispatch reaches."""
LATE_S = 5.0
"""Age of an answer after a pause in which a lease ran out."""


class EffectModel(Outside):
    """Steps and promises of a world under `rules`."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds, self.rules = bounds, rules or Rules()
        self.book = Book(self.rules.canonical)
        self._next: dict[Any, Any] = {}

    def steps(self, w: World) -> Steps:
        yield from self.happenings(w)
        for me in range(len(w.workers)):
            yield from self._worker(w, me)

    # --- workers ---------------------------------------------------------------------------------------------

    def _worker(self, w: World, me: int) -> Steps:
        one = w.workers[me]

        def now(_where: str = "", **changes: Any) -> tuple[Any, Any]:
            world = {name: changes.pop(name) for name in list(changes) if name in World._fields}
            moved = one._replace(**changes) if not _where else one._replace(at=_where, **changes)
            return w._replace(workers=put(w.workers, me, moved), **world), None

        if one.queued:
            yield f"{me}: queue reaches the page cache", now(queued=NONE, cached=one.cached | one.queued)[0]
        if one.cached - one.durable:
            yield f"{me}: barrier", now(durable=one.durable | one.cached)[0]
        past = self.book.past(one.last)
        if self.bounds.replica and one.token and one.at != "got" and not past <= w.replica:
            yield f"{me}: the replica acknowledges", w._replace(replica=w.replica | past)
        yield from getattr(self, f"_at_{one.at}")(w, me, one, now)

    def _stopped(self, one: Worker) -> Worker:
        return Worker(queued=one.queued, cached=one.cached, durable=one.durable)

    def _stops(self, w: World, me: int, one: Worker, **changes: Any) -> World:
        return w._replace(workers=put(w.workers, me, self._stopped(one)), **changes)

    def _visible(self, w: World, me: int, *, replica: bool = True) -> Events:
        found = NONE
        for other, on in enumerate(self.bounds.hosts):
            if on == self.bounds.hosts[me]:
                found |= w.workers[other].cached | w.workers[other].durable
        return found | w.replica if self.bounds.replica and replica else found

    def _at_idle(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        token, holder, held = w.record
        dead = holder >= 0 and self.bounds.hosts[holder] == self.bounds.hosts[me] and w.workers[holder].at == "idle"
        woken = any(a is not None and not self._knows(w, me, call, a) for call, a in enumerate(w.answered))
        found = self._visible(w, me)
        if (held == "held" and not dead and holder != me) or not (w.left.takes or woken) or self._stands(w, found):
            return
        tokens = {self.book.events[number].fencing_token for number in found}
        chosen = self.rules.next_token(token or None, tokens, has_events=bool(found))
        if isinstance(chosen, generations.RecordLost):
            return
        new = chosen.token if isinstance(chosen, generations.UseToken) else generations.first_token(chosen.at_least)
        if not self.rules.reads_after_lease and one.at == "idle":
            yield f"{me} reads the log", now("looked", last=self.book.read(found)[0])[0]
            return
        left = w.left if woken and not w.left.takes else w.left._replace(takes=w.left.takes - 1)
        yield (
            f"{me} takes the lease with token {new}",
            now("got", token=new, record=(new, me, "held"), left=left, held=0, sent=-1, failures=0)[0],
        )

    def _at_looked(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        yield from self._at_idle(w, me, one, now)

    def _stands(self, w: World, found: Events) -> bool:
        """Whether the outcome that is recorded may be returned without a lease."""
        last = self.book.read(found)[0]
        return (
            w.record[2] == "released" and last > NOBODY and self.book.ends(last)
            and self.book.events[last].fencing_token == w.record[0]
        )  # fmt: skip

    def _knows(self, w: World, me: int, call: int, answer: tuple[int, str]) -> bool:
        last = self.book.read(self._visible(w, me))[0]
        return f"{call}:{answer[0]}" in self.book.state(last).execution.mail if last > NOBODY else False

    def _at_got(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        """Read the log, write the opening event, and tell gateways."""
        elsewhere = any(
            other.queued or other.cached or other.durable
            for at, other in enumerate(w.workers) if self.bounds.hosts[at] != self.bounds.hosts[me]
        )  # fmt: skip
        complete = not elsewhere or self.bounds.replica
        if not complete and not self.bounds.accept_loss:
            yield f"{me} finds its log incomplete", self._stops(w, me, one, record=self._let_go(w, me, one))
            return
        for replica in (True,) if self.rules.replica_read or not self.bounds.replica else (True, False):
            found = self._visible(w, me, replica=replica)
            last, top, _ = self.book.read(found)
            if last < NOBODY:
                yield f"{me} reads no chain", w._replace(wrong="the canonical history is no chain")
                return
            if self.rules.must_stop(one.token, [top]):
                yield f"{me} meets a higher token", self._stops(w, me, one, record=self._let_go(w, me, one))
                return
            if not self.rules.reads_after_lease:
                last = one.last
            if self.book.ends(last) and not self.rules.opens_after_end:
                copies = self.book.past(last) - one.cached - one.durable
                yield f"{me} finds the end", now("ending", last=last, queued=one.queued | copies)[0]
                return
            opening = self.book.open(last, one.token, str(me))
            copies = self.book.past(last) - one.cached - one.durable if self.rules.copies_unsealed else NONE
            yield (
                f"{me} reads {len(self.book.past(last))} events and opens token {one.token}",
                now("announce" if self._announces(opening, complete) else "run", last=opening,
                    queued=one.queued | copies | {opening})[0],
            )  # fmt: skip

    def _announces(self, last: int, complete: bool) -> bool:
        state = self.book.state(last)
        doubts = [
            one.tool for one in state.execution.actions.values()
            if one.outcome is None and self.rules.stage(one, state, 0, None) == "in_doubt"
        ]  # fmt: skip
        gateways: dict[str, object] = {tool: "gateway" for tool in self.bounds.tools if tool == "gateway"}
        return bool(self.rules.gateways_to_announce(doubts, gateways, log_incomplete=not complete))

    def _at_announce(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        if self.rules.gateway_refuses(one.token, w.highest):
            yield f"{me} is refused by the gateway", self._stops(w, me, one)
        else:
            yield f"{me} announces token {one.token}", now("run", highest=max(w.highest, one.token))[0]

    def _at_run(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        """The next step of the agent, as the fold of its history has it."""
        if self.book.ends(one.last):
            yield f"{me} has the end", now("ending")[0]
            return
        state = self.book.state(one.last)
        for call, answer in enumerate(w.answered):
            payload = self._mail(state, call, answer)
            if payload is not None:
                yield f"{me} records what the person said", self._record(one, now, payload)
                return
        for call, kind in enumerate(self.bounds.tools):
            action = state.execution.actions.get(f"0.{call}")
            if action is None:
                yield f"{me} records intent {call}", self._intend(one, now, call, 1)
                return
            known = self.rules.stage(action, state, 0, one.token, waited=False, deadline_passed=False)
            if known == "in_doubt":
                yield from self._settle(w, me, one, now, call, kind, action.attempt)
                return
            if known == "unsent":
                yield f"{me} records intent {call} anew", self._intend(one, now, call, action.attempt + 1)
                return
            if action.status == "not_executed" and self.rules.try_again(
                "external", "not_executed", attempt=action.attempt, retries=self.bounds.retries
            ):
                yield from self._retry(w, me, one, now, call, kind, action)
                return
        yield f"{me} records the end", self._record(one, now, TaskEnded(status="completed"), "ending")

    def _mail(self, state: Any, call: int, answer: tuple[int, str] | None) -> Any:
        if answer is None:
            return None
        named = (call, answer, id(state))
        if named not in self._next:
            item = MailItem(
                id=f"{call}:{answer[0]}", tenant=TENANT, trajectory_id=NAME, kind="settle", subject=f"0.{call}",
                body={"verdict": answer[1], "because": "seen"}, actor="ada", actor_known_by="", posted_at=0,
            )  # fmt: skip
            found = self.rules.event_of(item, state)
            self._next[named] = None if isinstance(found, Drop) else found
        return self._next[named]

    def _record(self, one: Worker, now: Any, payload: Any, at: str = "run", **changes: Any) -> World:
        number = self.book.write(one.last, one.token, payload)
        world: World = now(at, last=number, queued=one.queued | {number}, wrote=True, **changes)[0]
        return world

    def _intend(self, one: Worker, now: Any, call: int, attempt: int, **changes: Any) -> World:
        kind = self.bounds.tools[call]
        payload = ToolIntent(
            action_id=f"0.{call}", tool=kind, arguments_hash="ab" * 32, key="cd" * 32, attempt=attempt,
            effect="idempotent" if kind == "key" else "external", timeout_s=TIMEOUT_S, settling="failures" in changes,
        )  # fmt: skip
        at = "bar" if self.rules.barrier_before_check else "check"
        return self._record(one, now, payload, at, call=call, **changes)

    def _retry(self, w: World, me: int, one: Worker, now: Any, call: int, kind: str, action: Any) -> Steps:
        rows = w.rows
        if kind == "gateway" and self.rules.tells_gateway_verdicts and action.outcome_kind == "settled":
            if self.rules.gateway_refuses(one.token, w.highest):
                yield f"{me} is refused by the gateway", self._stops(w, me, one)
                return
            row = w.rows[call]
            if self.rules.gateway_believes(row.replace("running", "started"), is_running=row == "running"):
                rows = put(rows, call, "not_executed")
        yield f"{me} tries call {call} again", self._intend(one, now, call, action.attempt + 1, rows=rows)

    def _settle(self, w: World, me: int, one: Worker, now: Any, call: int, kind: str, attempt: int) -> Steps:
        doubt = decide.Doubt(
            honours_key=kind in ("key", "gateway"), has_probe=kind == "probe", timeout_s=TIMEOUT_S,
            settle_after_s=SETTLE_AFTER_S, acquired_at_s=-self._ago(one.held), key_failures=one.failures,
            settle_attempts=1, last_send_s=None if one.sent < 0 else -self._ago(one.sent),
        )  # fmt: skip
        step = self.rules.settle_step(doubt, 0.0)
        if step == "key":
            yield (
                f"{me} sends the key of call {call} again",
                self._intend(one, now, call, attempt + 1, failures=one.failures + 1),
            )
            return
        if step == "probe":
            step = self.rules.settle_step(replace(doubt, probed="executed" if w.ran[call] else "not_executed"), 0.0)
        if step in ("executed", "not_executed"):
            payload: Any = ToolSettled(action_id=f"0.{call}", how="probe", verdict=step, attempt=attempt)  # type: ignore[arg-type]
            yield f"{me} takes call {call} for {step}", self._record(one, now, payload)
        elif step == "person":
            released = LeaseReleased(token=one.token, reason="parked")
            yield (
                f"{me} parks with a question about call {call}",
                self._record(one, now, released, "parking", call=call),
            )

    @staticmethod
    def _ago(ticks: int) -> float:
        """Seconds that have passed at least after so many ticks."""
        return max(0, ticks - 1) * BOUND_S

    def _owns(self, w: World, me: int, one: Worker) -> bool:
        """The store extends a lease as long as nobody took another."""
        return w.record[0] == one.token and w.record[1] == me

    def _is_kept(self, w: World, one: Worker, *, local: bool = True, replica: bool = True) -> bool:
        past = self.book.past(one.last)
        here = not local or not (past & (one.queued | (one.cached - one.durable)))
        return here and (not self.bounds.replica or not replica or past <= w.replica)

    def _at_bar(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        rules = self.rules
        kept = self._is_kept(w, one, local=rules.local_before_send, replica=rules.replica_before_send)
        if kept or not rules.barrier_before_send or (one.failures and not rules.barrier_before_key):
            yield f"{me}: intent {one.call} is durable", now("check" if rules.barrier_before_check else "armed")[0]

    def _at_check(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        if not self._owns(w, me, one):
            yield f"{me} has lost its lease", self._stops(w, me, one)
            return
        if not self.rules.barrier_before_check:
            yield f"{me} extends its lease", now("bar", record=(one.token, me, "held"))[0]
            return
        yield f"{me} extends its lease", now("armed", record=(one.token, me, "held"), stale=False)[0]

    def _at_armed(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        """The permit is looked at as the last step before the send."""
        good = self.rules.may_dispatch(
            held_until_s=HELD_S, timeout_s=TIMEOUT_S, answered_at_s=0.0, now_s=LATE_S if one.stale else 0.1
        )
        if not good:
            yield f"{me}: leave to send is too old", now("check", stale=False)[0]
        elif self.bounds.window:
            yield f"{me} is about to send", now("sending")[0]
        else:
            yield self._send(w, me, one, now)

    def _at_sending(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        yield self._send(w, me, one, now)

    def _send(self, w: World, me: int, one: Worker, now: Any) -> tuple[str, World]:
        everywhere = frozenset[int]().union(*(other.durable for other in w.workers))
        past = self.book.past(one.last)
        wrong = ""
        if not past <= everywhere:
            wrong = "a send before its intent is durable here"
        if self.bounds.replica and not past <= w.replica:
            wrong = "a send before the replica has its intent"
        attempt = self.book.body(one.last).attempt
        if self.bounds.tools[one.call] == "neither" and w.answered[one.call] == (attempt, "not_executed"):
            wrong = wrong or "a call was sent after a person had said that it did not happen"
        net = tuple(sorted((*w.net, Message(one.call, one.token, attempt, me, "call", 0))))
        return f"{me} sends call {one.call}", now("wait", net=net, sent=0, stale=False, wrong=wrong)[0]

    def _at_wait(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        mine = [m for m in w.net if m.to == me and m.token == one.token and m.call == one.call]
        running = self.bounds.tools[one.call] == "gateway" and w.rows[one.call] == "running"
        if w.left.timeouts:
            left = w.left._replace(timeouts=w.left.timeouts - 1)
            yield f"{me} waits no longer", self._raised(one, now, left=left)
        elif not mine and not running:
            yield f"{me} gets no answer", self._raised(one, now)

    def answered(self, w: World, m: Message, rest: tuple[Message, ...]) -> Steps:
        me, one = m.to, w.workers[m.to]
        if (one.at, one.call, one.token) != ("wait", m.call, m.token):
            yield "a late answer is dropped", w._replace(net=rest)
            return

        def now(_where: str = "", **changes: Any) -> tuple[Any, Any]:
            world = {name: changes.pop(name) for name in list(changes) if name in World._fields}
            return w._replace(workers=put(w.workers, me, one._replace(at=_where, **changes)), net=rest, **world), None

        if m.kind == "ok":
            yield f"{me} records the result of call {m.call}", self._result(one, now, "ok")
        else:
            yield f"{me} is told nothing of call {m.call}", self._raised(one, now)

    def _raised(self, one: Worker, now: Any, **changes: Any) -> World:
        """A body ended by an exception: what is known of its effect?"""
        effect = "idempotent" if self.bounds.tools[one.call] == "key" else "external"
        outcome = self.rules.outcome_of(effect, raised=True)
        if outcome == "unknown":
            world: World = now("run", **changes)[0]
            return world
        return self._result(one, now, outcome, **changes)

    def _result(self, one: Worker, now: Any, status: Any, **changes: Any) -> World:
        body = self.book.body(one.last)
        payload: Any = ToolResult(action_id=f"0.{one.call}", status=status, attempt=body.attempt)
        if body.settling and status == "ok":
            payload = ToolSettled(action_id=f"0.{one.call}", how="key", verdict="executed", attempt=body.attempt)
        return self._record(one, now, payload, failures=0, **changes)

    # --- what is shown ---------------------------------------------------------------------------------------

    def _at_parking(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        if not self._is_kept(w, one):
            return
        if not self._owns(w, me, one):
            yield f"{me} has lost its lease", self._stops(w, me, one)
            return
        attempt = self.book.state(one.last).execution.actions[f"0.{one.call}"].attempt
        asked = put(w.asked, one.call, attempt)
        yield f"{me} has parked", self._stops(w, me, one, record=(one.token, me, "released"), asked=asked)

    def _at_ending(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        """The end is returned once it is durable here, at the replica, and a lease check succeeded after that."""
        here = self._is_kept(w, one, replica=False)
        there = self._is_kept(w, one, local=False) if self.bounds.replica else None
        if self.rules.may_acknowledge(durable=here, replica_acknowledged=there, lease_checked_after=False):
            yield self._show(w, me, one)
        elif self.rules.may_acknowledge(durable=here, replica_acknowledged=there, lease_checked_after=True):
            if self._owns(w, me, one):
                yield f"{me} extends its lease", now("showing", record=(one.token, me, "held"))[0]
            else:
                yield f"{me} answers Busy", self._stops(w, me, one)

    def _at_showing(self, w: World, me: int, one: Worker, now: Any) -> Steps:
        yield self._show(w, me, one)

    def _show(self, w: World, me: int, one: Worker) -> tuple[str, World]:
        record = self._let_go(w, me, one)
        return f"{me} returns the end", self._stops(w, me, one, shown=w.shown | {one.last}, record=record)

    def _let_go(self, w: World, me: int, one: Worker) -> tuple[int, int, str]:
        """The lease record after this worker let go of what it may hold no more."""
        return (one.token, me, "released") if self._owns(w, me, one) else w.record

    # --- promises --------------------------------------------------------------------------------------------

    def broken(self, w: World) -> str | None:
        if w.wrong:
            return w.wrong
        for call, times in enumerate(w.ran):
            if times > 1 and not self._is_excused(w, call):
                return f"the effect of call {call} ({self.bounds.tools[call]}) happened twice"
        return self._lost(w) if w.shown and not self.bounds.accept_loss else None

    def _is_excused(self, w: World, call: int) -> bool:
        """A person said no while the first call was still under way: nobody can know that without a gateway."""
        answer = w.answered[call]
        return self.bounds.tools[call] in ("probe", "neither") and answer is not None and answer[1] == "not_executed"

    def _lost(self, w: World) -> str | None:
        kept = frozenset[int]().union(w.replica, *(one.durable for one in w.workers))
        last, _, in_conflict = self.book.read(kept)
        past = self.book.past(last) if last > NOBODY else NONE
        if in_conflict or last < NOBODY:
            return "two events contend for one place"
        if any(shown not in past for shown in w.shown):
            return "an end that was shown is not in the history"
        kinds = [self.book.kind(number) for number in self.book.line(last)]
        after = kinds[kinds.index("TaskEnded") + 1 :]
        if any(kind not in ("LeaseAcquired", "LeaseReleased") for kind in after):
            return "something stands after the end"
        actions = self.book.state(last).execution.actions
        for call, times in enumerate(w.ran):
            if actions[f"0.{call}"].outcome is None:
                return f"an end was shown while call {call} was in doubt"
            if not times and actions[f"0.{call}"].status == "ok":
                return f"the effect of call {call} is taken for done, and never happened"
        return None

    def done(self, w: World) -> bool:
        """The end was shown, or a bound keeps the workers from going on."""
        return bool(w.shown) or not w.left.takes
