"""What surrounds the workers of a model: kills, power loss, lapsing leases, messages, a gateway, tools, a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.model.agent_book import Book
from tests.model.agent_world import Bounds, Message, Rules, Steps, Worker, World, put


class Outside:
    """Everything that happens to workers."""

    bounds: Bounds
    rules: Rules
    book: Book
    answered: Callable[[World, Message, tuple[Message, ...]], Steps]

    def happenings(self, w: World) -> Steps:
        """Every step that no worker takes."""
        yield from self._faults(w)
        for place, message in enumerate(w.net):
            yield from self._deliver(w, message, (*w.net[:place], *w.net[place + 1 :]))
        yield from self._gateway(w)
        yield from self._person(w)

    # --- what goes wrong -------------------------------------------------------------------------------------

    def _faults(self, w: World) -> Steps:
        left = w.left
        for me, one in enumerate(w.workers):
            if one.at != "idle" and left.kills:
                dead = Worker(cached=one.cached, durable=one.durable)
                yield (
                    f"SIGKILL {me}",
                    w._replace(workers=put(w.workers, me, dead), left=left._replace(kills=left.kills - 1)),
                )
        for host in sorted(set(self.bounds.hosts)) if left.powers else ():
            mine = [me for me, on in enumerate(self.bounds.hosts) if on == host]
            if any(w.workers[me].at != "idle" or w.workers[me].cached for me in mine):
                workers = tuple(Worker(durable=one.durable) if me in mine else one for me, one in enumerate(w.workers))
                yield (
                    f"POWER LOSS of host {host}",
                    w._replace(workers=workers, left=left._replace(powers=left.powers - 1)),
                )
        token, holder, held = w.record
        if held == "held" and left.expiries:
            paused = w.workers[holder]
            workers = put(w.workers, holder, paused._replace(stale=True)) if paused.at == "armed" else w.workers
            yield (
                f"the lease of {holder} runs out",
                w._replace(
                    workers=workers, record=(token, holder, "out"), left=left._replace(expiries=left.expiries - 1)
                ),
            )
        if "probe" in self.bounds.tools:
            yield from self._tick(w)

    def _tick(self, w: World) -> Steps:
        """A message of a probed tool is under way for one tick at most; ages count up to two."""
        timed = [m.kind == "call" and self.bounds.tools[m.call] == "probe" for m in w.net]
        if any(is_timed and m.age for m, is_timed in zip(w.net, timed, strict=True)):
            return
        net = tuple(sorted(m._replace(age=1) if is_timed else m for m, is_timed in zip(w.net, timed, strict=True)))
        workers = tuple(
            one if one.at == "idle"
            else one._replace(held=min(2, one.held + 1), sent=one.sent if one.sent < 0 else min(2, one.sent + 1))
            for one in w.workers
        )  # fmt: skip
        if (net, workers) != (w.net, w.workers):
            yield "time passes", w._replace(net=net, workers=workers)

    # --- the world outside -----------------------------------------------------------------------------------

    def _deliver(self, w: World, m: Message, rest: tuple[Message, ...]) -> Steps:
        def answer(kind: str, label: str, **changes: Any) -> tuple[str, World]:
            net = tuple(sorted((*rest, m._replace(kind=kind, age=0))))
            return f"{label} (call {m.call}, token {m.token})", w._replace(net=net, **changes)

        if m.kind != "call":
            yield from self.answered(w, m, rest)
            return
        if w.left.losses:
            yield (
                f"the call {m.call} of {m.to} is lost",
                w._replace(net=rest, left=w.left._replace(losses=w.left.losses - 1)),
            )
        kind = self.bounds.tools[m.call]
        ran = put(w.ran, m.call, w.ran[m.call] + 1)
        if kind == "gateway":
            yield from self._at_gateway(w, m, answer)
        elif kind == "key" and w.rows[m.call]:
            known = w.rows[m.call] == str(0 if self.rules.keeps_key else m.attempt)
            yield answer("ok", "the tool knows the key") if known else answer("ok", "the tool runs", ran=ran)
        elif kind == "key":
            rows = put(w.rows, m.call, str(0 if self.rules.keeps_key else m.attempt))
            yield answer("ok", "the tool runs", ran=ran, rows=rows)
        else:
            yield answer("ok", "the tool runs", ran=ran)

    def _at_gateway(self, w: World, m: Message, answer: Any) -> Steps:
        if self.rules.gateway_refuses(m.token, w.highest):
            yield answer("refused", "the gateway refuses")
            return
        highest = max(w.highest, m.token)
        row = w.rows[m.call]
        said = self.rules.gateway_answer(row.replace("running", "started"), is_running=row == "running")
        if said == "run":
            superseded = any(one.token > m.token and one.wrote for one in w.workers)
            yield (
                f"the gateway starts call {m.call} (token {m.token})",
                w._replace(rows=put(w.rows, m.call, "running"), highest=highest,
                           wrong="a gateway took a call of a worker whose successor was at work" if superseded else ""),
            )  # fmt: skip
        elif said == "kept":
            yield answer("ok", "the gateway answers with the kept result", highest=highest)
        elif said == "unknown":
            sender = w.workers[m.to]
            freed = w.answered[m.call] == (m.attempt - 1, "not_executed") and sender.at == "wait"
            freed = freed and not self.book.body(sender.last).settling
            wrong = "a gateway still cannot say, after a person has said that the call did not happen" if freed else ""
            yield answer("unknown", "the gateway cannot say", highest=highest, wrong=wrong)

    def _gateway(self, w: World) -> Steps:
        for call, row in enumerate(w.rows):
            if row != "running":
                continue
            ran = put(w.ran, call, w.ran[call] + 1)
            yield f"call {call} runs behind the gateway", w._replace(ran=ran, rows=put(w.rows, call, "done"))
            if w.left.gateway_deaths:
                dead = w._replace(
                    rows=put(w.rows, call, "started"), net=tuple(m for m in w.net if m.call != call),
                    left=w.left._replace(gateway_deaths=w.left.gateway_deaths - 1),
                )  # fmt: skip
                yield f"the gateway dies before call {call} ran", dead
                yield f"the gateway dies after call {call} ran", dead._replace(ran=ran)

    def _person(self, w: World) -> Steps:
        """Says the truth of the moment about what it was asked."""
        for call, attempt in enumerate(w.asked):
            if attempt and (w.answered[call] is None or w.answered[call][0] != attempt):  # type: ignore[index]
                verdict = "executed" if w.ran[call] else "not_executed"
                answered = put(w.answered, call, (attempt, verdict))
                yield f"a person says: call {call} was {verdict}", w._replace(answered=answered)
