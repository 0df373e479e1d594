"""The blocking driver: performs the core's requests in the calling thread, tool bodies in threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from ..env import Env
from ..tools import Result, Retry
from .enter import Order
from .errors import Misuse
from .handles import TrajectoryHandle, TurnHandle, call_given
from .inputs import read_slowly
from .leave import abandon, ask_for_end, end_task
from .life import conclude, prepare
from .model_call import MODEL_RETRY, Reply, ToolCall, run_model
from .outcome import Outcome
from .requests import Block, Done, Next, NotBegun, Request, Sleep, Start, Steps, Wait
from .session import Session
from .spawn import Child, run_spawns
from .tool_call import run_call, run_tools

Perform = Callable[[Request], Any]

IDLE_MAX_S: Final = 5.0
"""How long the thread of a body that ended waits for the next one. Starting a thread costs more than a barrier."""


class _Worker:
    """A thread for bodies. It waits for its lock, then runs its job; who gives it one releases the lock, or has it
    released when the job may begin: then nobody in between need wake up for that.
    """

    __slots__ = ("job", "lock")

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.lock.acquire()
        self.job: tuple[contextvars.Context, Start] | None = None


class _Running:
    """A body that is waited for. `due_s`: when its time is over; inf while it has not begun, or may take any time."""

    __slots__ = ("due_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = inf if timeout_s is None else timeout_s
        self.due_s = inf


class Bodies:
    """Bodies that run beside the core, each in a thread that no other body uses meanwhile, until they end or their
    time is over. A thread whose body ended may take the next one.
    """

    def __init__(self, env: Env) -> None:
        self._now_s = env.monotonic
        self._ends: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._idle: list[_Worker] = []

    def start(self, request: Start) -> None:
        """Run a body in a thread (a daemon: one that never ends does not keep the process)."""
        running = self._running[request.tag] = _Running(request.timeout_s)
        if request.after is None:
            running.due_s = self._now_s() + running.timeout_s
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker()
            name = f"trajlake-body-{request.tag}"
            threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True).start()
        worker.job = contextvars.copy_context(), request
        if request.after is None or not request.after.release_when_ended(worker.lock):
            worker.lock.release()

    def next(self) -> Done:
        """Return how the next body ended; one whose time is over counts as ended, whatever it still does."""
        while True:
            try:
                done = self._ends.get(timeout=self._patience_s())
            except queue.Empty:
                overdue = self._overdue()
                if overdue is None:
                    continue
                done = Done(overdue, error=TimeoutError("the call's time is over; whether it happened is not known"))
            except BaseException:
                self._running.clear()  # nobody waits any more: what has not begun never will
                raise
            if self._running.pop(done.tag, None) is not None:
                return done

    def _patience_s(self) -> float | None:
        """How long no body can become overdue; None: for ever. One that has not begun has all its time before it."""
        now_s = self._now_s()
        waits_s = min(min(one.due_s - now_s, one.timeout_s) for one in self._running.values())
        return None if waits_s == inf else max(0.0, waits_s)

    def _overdue(self) -> int | None:
        now_s = self._now_s()
        return next((tag for tag, one in self._running.items() if one.due_s <= now_s), None)

    def _serve(self, worker: _Worker) -> None:
        while True:
            if not worker.lock.acquire(timeout=IDLE_MAX_S):
                try:
                    self._idle.remove(worker)
                except ValueError:  # it has a job, which may not begin yet
                    worker.lock.acquire()
                else:
                    return
            assert worker.job is not None
            (context, request), worker.job = worker.job, None
            done = self._not_begun(request) or context.run(_ended, request)
            # Idle before it tells, so that the call which follows finds this thread.
            self._idle.append(worker)
            self._ends.put(done)
            del context, request, done

    def _not_begun(self, request: Start) -> Done | None:
        """Wait until the body may begin, and let its time begin; else return why it never will."""
        if request.after is None:
            return None
        try:
            request.after.wait()
        except BaseException as error:  # noqa: BLE001 - told to the core, which raises it
            return Done(request.tag, error=NotBegun(error))
        running = self._running.get(request.tag)
        if running is None:
            return Done(request.tag, error=NotBegun(InterruptedError("nobody waits for it")))
        running.due_s = self._now_s() + running.timeout_s
        return None


def _ended(request: Start) -> Done:
    try:
        value = request.call()
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except BaseException as error:  # noqa: BLE001 - told to the core, which decides what it means
        return Done(request.tag, error=error)
    return Done(request.tag, value)


def performer(env: Env) -> Perform:
    """Return a function that performs requests for one trajectory."""
    bodies = Bodies(env)
    never = threading.Event()

    how: dict[type, Callable[[Any], Any]] = {
        Wait: lambda request: request.ticket.wait(),
        Block: lambda request: request.call(),
        Start: bodies.start,
        Next: lambda _: bodies.next(),
        Sleep: lambda request: never.wait(request.seconds),
    }
    return lambda request: how[type(request)](request)


def drive(steps: Steps, perform: Perform) -> Any:
    """Run an operation of the core to its end and return its value; what a request raises is thrown into it."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            return stop.value
        answer, error = None, None
        try:
            answer = perform(request)
        except BaseException as raised:  # noqa: BLE001 - thrown into the core at the next step
            error = raised


class Turn(TurnHandle):
    """One turn of a plain agent. Each method returns only what is durable and was shown under a valid lease."""

    _t: Trajectory

    def model(
        self, model: Any = None, tools: Sequence[Any] | None = None, *,
        messages: Sequence[Mapping[str, Any]] | None = None, purpose: str = "act",
        on_delta: Callable[[str], None] | None = None, retry: Retry = MODEL_RETRY,
        parameters: Mapping[str, Any] | None = None,
    ) -> Reply:  # fmt: skip
        """Ask the model. What `on_delta` sees while a reply streams is provisional: not recorded, not durable.

        `tools`: names or tools offered (None: all registered). `parameters`: of the request (None: the run's
        `sampling`). Raises `ModelFailed`, `BudgetExhausted`, `Busy`.
        """
        ask = self._ask(model, tools, messages, purpose, on_delta, retry, parameters)
        reply: Reply = self._t._drive(run_model(self._s, ask))
        return reply

    def tools(self, calls: Sequence[ToolCall], limit: int = 8) -> list[Result]:
        """Run the calls of a reply beside each other; results in call order, all settled."""
        if not calls:
            return []
        results: list[Result] = self._t._drive(run_tools(self._s, [call_given(call) for call in calls], limit))
        return results

    def tool(self, call: ToolCall) -> Result:
        """Run one call of a reply."""
        return self.tools([call])[0]

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, step: str = "") -> Result:
        """Make a call of the harness's own; `step` names it in the idempotency key (default: the tool's name)."""
        result: Result = self._t._drive(run_call(self._s, name, arguments or {}, step))
        return result

    def read(self, name: str, produce: Callable[[], Any]) -> Any:
        """Return what `produce` gives, recorded: the same value when the turn is entered again."""
        return self._t._drive(read_slowly(self._s, name, produce))

    def spawn(self, agent: Callable[..., Any], name: str, *, task: Any, **options: Any) -> Outcome:
        """Run another agent as a child trajectory of its own; return its outcome.

        It draws on this trajectory's budget: on `budget={unit: amount}` of it, else on all that is left. Raises
        `BudgetExhausted` where less is left. What the child's own code raises passes through this agent too, which
        must not catch it; a resume goes on with the child.
        """
        return (self.spawn_all([(agent, name, task)], **options))[0]

    def spawn_all(
        self, children: Sequence[tuple[Callable[..., Any], str, Any] | Child], *, limit: int = 8, **options: Any
    ) -> list[Outcome]:
        """Run children (agent, name, task) beside each other; their outcomes in order, all ended.

        `options` go to each; `Child(agent, name, task, options)` has its own. What of the budget no child names is
        shared equally. A child that is parked parks this trajectory once the others have ended.
        """
        wanted = [one if isinstance(one, Child) else Child(*one, options) for one in children]

        def run_child(child: Child, child_id: str, limits: Mapping[str, str]) -> Any:
            given = {**child.options, "budget": limits}
            return self._t._spawn(child.agent, child_id, child.task, given)

        outcomes: list[Outcome] = self._t._drive(run_spawns(self._s, wanted, run_child, limit))
        return outcomes


class Trajectory(TrajectoryHandle):
    """`t` of a plain agent. It belongs to the thread that runs the agent."""

    def __init__(self, s: Session, perform: Perform, spawn: Callable[..., Any], **more: Any) -> None:
        super().__init__(s, **more)
        self._perform, self._spawn = perform, spawn

    def turns(self, max: int = 200) -> Iterator[Turn]:  # noqa: A002 - the public name
        """Yield the turns from the open one on, until the end is asked for or `max` turns were begun."""
        s = self._s
        number = s.loop.enter(s)
        served = s.turn == number
        while number < max and s.ended is None:
            if s.owner_now() != s.owner:
                raise Misuse("t.turns: a trajectory belongs to the thread that runs it")
            if not served:
                if s.view.budget.frozen().allows({"turns": "1"}) is not None:
                    break
                self._drive(s.loop.next(s, number))
            yield Turn(self, s, number)
            served = False
            number += 1
        if s.ended is None:
            s.exhausted = True

    def finish(self, result: Any = None) -> None:
        """End the task as completed. Returns once the end is durable; the loop over the turns then ends."""
        ask_for_end(self._s, "completed", result, "")
        self._drive(end_task(self._s))

    def fail(self, reason: str) -> None:
        """End the task as failed."""
        ask_for_end(self._s, "failed", None, reason)
        self._drive(end_task(self._s))

    def _drive(self, steps: Steps) -> Any:
        return drive(steps, self._perform)


def run(
    s: Session, order: Order, agent: Callable[..., Any], make: Callable[[Session, Perform], Trajectory],
    perform: Perform,
) -> Outcome:  # fmt: skip
    """Run, resume or report one trajectory; see `Journal.run`."""
    s.owner_now = threading.get_ident
    s.owner = threading.get_ident()
    try:
        early: Outcome | None = drive(prepare(s, order), perform)
        if early is not None:
            return early
        value, error = None, None
        try:
            value = agent(make(s, perform))
        except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
            error = raised
        outcome: Outcome = drive(conclude(s, value, error), perform)
        return outcome
    finally:
        abandon(s)
