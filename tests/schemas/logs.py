"""Logs for tests of the contract: one written by hand, event by event, and random ones from a seed."""

from __future__ import annotations

import hashlib
import random
from copy import deepcopy
from typing import Any

from trajlake.schemas import events as e
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import MailStamp, Payload

TENANT, TRAJECTORY = "default", "run-1"
MINUTE_US = 60_000_000


def event(payload: Payload, number: int, token: int, prev: bytes, turn: int = 0, trajectory: str = TRAJECTORY) -> Event:
    """One event whose salt follows from what it is, so that the same call gives the same bytes."""
    salt = hashlib.sha256(f"{trajectory} {number} {token} {turn}".encode()).digest()[:16]
    return make_event(
        payload,
        tenant=TENANT,
        trajectory_id=trajectory,
        sequence_number=number,
        fencing_token=token,
        turn=turn,
        recorded_at=1_700_000_000_000_000 + number * MINUTE_US,
        salt=salt,
        prev=prev,
    )


class Log:
    """A growing, chained log: `add` returns the event, `opening` takes over with the next token."""

    def __init__(self, trajectory: str = TRAJECTORY, token: int = 1) -> None:
        self.trajectory, self.token, self.turn = trajectory, token, -1
        self.events: list[Event] = []

    @property
    def next(self) -> int:
        return len(self.events)

    def add(self, payload: Payload, turn: int | None = None) -> Event:
        if turn is not None:
            self.turn = turn
        prev = self.events[-1].hash if self.events else genesis(TENANT, self.trajectory)
        made = event(payload, self.next, self.token, prev, self.turn, self.trajectory)
        self.events.append(made)
        return made

    def opening(self) -> Event:
        last = self.events[-1]
        self.token += 1
        return self.add(
            e.LeaseAcquired(
                token=self.token,
                after_token=last.fencing_token,
                after_sequence=last.sequence_number,
                after_hash=last.hash.hex(),
                worker=f"w{self.token}",
            )
        )

    def reply(self, *tools: str, turn: int | None = None, **fields: Any) -> Event:
        return self.add(e.ModelReplied(calls=tuple(e.ProposedCall(tool=tool) for tool in tools), **fields), turn)

    def intent(self, action_id: str, **fields: Any) -> Event:
        given = {"tool": "pay", "arguments_hash": "a" * 64, "key": "k" + action_id, "effect": "external"} | fields
        return self.add(e.ToolIntent(action_id=action_id, **given))

    def checkpoint(self) -> int:
        saved = e.CheckpointSaved(covers=self.next - 1, state_hash="", root="", cause="interval")
        return self.add(saved).sequence_number

    def roll_back(self, to: int, turn: int) -> Event:
        return self.add(e.RolledBack(to=to, from_=self.next - 1), turn)


def mail(number: int) -> MailStamp:
    return MailStamp(mail_id=f"m{number}", actor="ann", posted_at=1_700_000_000_000_000)


class RandomLog(Log):
    """A log of `length` events or a few more, every type in it, with roll-backs, from one seed."""

    def __init__(self, seed: int, length: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.mails = 0
        self.known: dict[str, Any] = {"actions": [], "lengths": {}, "approvals": [], "names": []}
        self.saved: list[tuple[int, int, dict[str, Any]]] = []
        self.add(e.TaskStarted(task={"text": "mend"}, budget={"usd": "5", "turns": "40"}, model="m"))
        while self.next < length:
            self.random.choice(self.STEPS)(self)

    def stamp(self) -> MailStamp | None:
        self.mails += 1
        return mail(self.mails) if self.random.random() < 0.4 else None

    def action(self) -> str:
        actions = self.known["actions"]
        return self.random.choice(actions) if actions else f"{self.next}.0"

    def new_turn(self) -> None:
        lengths = self.known["lengths"]
        base = self.random.choice([None, *lengths]) if lengths else None
        keep = self.random.randint(0, lengths[base]) if base is not None else 0
        append = tuple(range(max(0, self.next - self.random.randint(0, 3)), self.next))
        purpose = self.random.choice(["act", "act", "sum"])
        self.add(
            e.ContextBuilt(context_hash=f"h{self.next}", base=base, keep=keep, append=append, purpose=purpose),
            self.turn + self.random.randint(0, 1),
        )
        lengths[self.next - 1] = keep + len(append)
        calls = self.random.randint(0, 3)
        status = self.random.choice(["kept", "kept", "kept", "rejected", "error"])
        usage = e.Usage(input_total=self.random.randint(0, 900), output=7)
        self.reply(*["pay"] * calls, status=status, usage=usage, cost={"usd": f"0.{self.random.randint(0, 99):02}"})
        if status == "kept":
            self.known["actions"] += [f"{self.next - 1}.{index}" for index in range(calls)]

    def call(self) -> None:
        action = f"{self.next}.0" if self.random.random() < 0.2 else self.action()
        if action not in self.known["actions"]:
            self.known["actions"].append(action)
        if self.random.random() < 0.5:
            self.add(e.Authorized(action_id=action, tool="pay", decision="allow", arguments_hash="b" * 64))
        reserved = {"usd": f"0.{self.random.randint(1, 999)}"} if self.random.random() < 0.5 else {}
        approval = self.random.choice(["", *self.known["approvals"]])
        self.intent(action, attempt=self.random.randint(1, 2), reserved=reserved, approval=approval)

    def outcome(self) -> None:
        action, choice = self.action(), self.random.randint(0, 5)
        if choice == 0:
            self.add(e.LateResult(action_id=action, decision="refused", mail=self.stamp()))
        elif choice == 1:
            verdict = self.random.choice(["executed", "not_executed"])
            self.add(e.ToolSettled(action_id=action, how="probe", verdict=verdict, mail=self.stamp()))
        else:
            status = self.random.choice(["ok", "error", "not_executed", "refused"])
            cost = {"usd": "0.125"} if status == "ok" else {}
            workspace = self.random.choice([None, f"ws{self.next}"])
            made = e.ToolResult(action_id=action, status=status, cost=cost, mail=self.stamp(), workspace=workspace)
            self.add(made)

    def approval(self) -> None:
        name = f"p{self.next}"
        self.known["approvals"].append(name)
        self.add(e.ApprovalRequested(approval_id=name, action_id=self.action(), tool="pay", arguments_hash="b" * 64))
        resolved = e.ApprovalResolved(
            approval_id=self.random.choice(self.known["approvals"]),
            action_id="0.0",
            decision=self.random.choice(["granted", "denied"]),
            approver="bob",
            mail=self.stamp(),
        )
        self.add(resolved)

    def intent_state(self) -> None:
        names = [f"i{number}" for number in range(4)]
        name = self.random.choice(names)
        predicate = e.Predicate(tool=self.random.choice(["*", "pay"]), verdict="ask")
        self.add(
            self.random.choice(
                [
                    e.GoalRevised(goal={"g": self.next}),
                    e.ConstraintAccepted(constraint_id=name, text="no", predicate=predicate),
                    e.ConstraintWithdrawn(constraint_id=name),
                    e.AssumptionCommitted(assumption_id=name, text="so", rests_on=(0, 1)),
                    e.AssumptionRetracted(assumption_id=name),
                    e.ObligationOpened(obligation_id=name, text="owe"),
                    e.ObligationDischarged(obligation_id=name),
                    e.PlanCommitted(plan=[1, 2.5, {"x": None}]),
                    e.ObservationCached(observation_id=name, observed_at=3, half_life_s=1.5),
                    e.ObservationInvalidated(observation_id=name),
                    e.AuthorityAcquired(authority_id=name, scope=("a",), amount={"usd": "1"}),
                    e.AuthorityEnded(authority_id=name),
                    e.VarSet(name=name, value={"v": self.next}),
                    e.VarSet(name=name, deleted=True),
                    e.BudgetRevised(limits={"usd": str(self.next)}),
                ]
            )
        )

    def plain(self) -> None:
        drift = e.DriftDetected(what="model", choice=self.random.choice(["switch", "pin"]))
        self.add(
            self.random.choice(
                [
                    e.MessageAdded(role="user", wire={"content": "hi"}, item_hash="c" * 64, mail=self.stamp()),
                    e.InputRead(kind="now", value=1),
                    e.Compacted(summary="short"),
                    e.CancelRequested(mail=self.stamp()),
                    e.Resumed(last_sequence=self.next - 1, accept_loss=self.random.random() < 0.3),
                    e.ResumeRefused(reason="drift"),
                    e.SourceKept(kind="x"),
                    drift,
                ]
            )
        )

    def take_over(self) -> None:
        if self.random.random() < 0.5:
            self.add(e.LeaseReleased(token=self.token))
        self.opening()

    def save(self) -> None:
        at = self.checkpoint()
        self.saved.append((at, self.turn, deepcopy(self.known)))

    def go_back(self) -> None:
        if not self.saved:
            return
        place = self.random.randrange(len(self.saved))
        to, turn, known = self.saved[place]
        self.saved = self.saved[: place + 1]
        self.known = deepcopy(known)
        self.roll_back(to, turn)

    STEPS = (
        [new_turn] * 4
        + [call] * 4
        + [outcome] * 4
        + [intent_state] * 5
        + [plain] * 3
        + [approval, take_over, save, go_back]
    )
