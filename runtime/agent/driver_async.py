"""The asyncio driver: the same core, its requests awaited; functions that block run in worker threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any

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

Perform = Callable[[Request], Awaitable[Any] | None]


class Bodies:
    """Bodies that run beside the core: coroutines as tasks, functions in threads, each until its time is over."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: deque[Done] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._not_begun: set[int] = set()
        self._due_s: dict[int, float] = {}
        self._overdue: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, request: Start) -> None:
        """Start a body; `next` brings its end."""
        if request.after is not None:
            self._not_begun.add(request.tag)
        self._tasks[request.tag] = self._loop.create_task(self._run(request), name=f"trajlake-body-{request.tag}")

    async def next(self) -> Done:
        """Wait for the next end."""
        while not self._ends:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except BaseException:
                for tag in self._not_begun:  # nobody waits any more: what has not begun never will
                    self._tasks[tag].cancel()
                raise
        return self._ends.popleft()

    async def _run(self, request: Start) -> None:
        tag = request.tag
        try:
            if request.after is not None:
                try:
                    await request.after
                except Exception as error:
                    raise NotBegun(error) from error
                finally:
                    self._not_begun.discard(tag)
            if request.timeout_s is not None:
                self._limit(tag, self._loop.time() + request.timeout_s)
            value = await (request.call() if request.is_async else _in_thread(request.call))
        except asyncio.CancelledError as error:
            if tag not in self._overdue:
                self._ended(Done(tag, error=error))
                raise
            self._ended(Done(tag, error=TimeoutError("the call's time is over; whether it happened is not known")))
        except BaseException as error:  # noqa: BLE001 - told to the core, which decides what it means
            self._ended(Done(tag, error=error))
        else:
            self._ended(Done(tag, value))

    def _limit(self, tag: int, due_s: float) -> None:
        """Cancel a body when its time is over. One timer for all: a call that ends in time, as most do, sets none."""
        self._due_s[tag] = due_s
        if self._timer is None or due_s < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due_s, self._look_at_time)

    def _look_at_time(self) -> None:
        now_s = self._loop.time()
        for tag in [tag for tag, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[tag]
            self._overdue.add(tag)
            self._tasks[tag].cancel()
        self._timer = None
        if self._due_s:
            self._timer = self._loop.call_at(min(self._due_s.values()), self._look_at_time)

    def _ended(self, done: Done) -> None:
        del self._tasks[done.tag]
        self._due_s.pop(done.tag, None)
        self._overdue.discard(done.tag)
        self._ends.append(done)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run a function in a thread of its own: the shared pool could be full of bodies whose time is over."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error if not isinstance(error, StopIteration) else RuntimeError(repr(error)))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:  # noqa: BLE001 - passed on to the task
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=work, name="trajlake-body", daemon=True).start()
    return future


def performer() -> Perform:
    """Return a function that begins requests for one trajectory: it returns what to await, if anything."""
    bodies = Bodies()

    def perform(request: Request) -> Awaitable[Any] | None:
        match request:
            case Wait():
                return request.ticket
            case Next():
                return bodies.next()
            case Start():
                bodies.start(request)
                return None
            case Block():
                return asyncio.to_thread(request.call)
            case Sleep():
                return asyncio.sleep(request.seconds)

    return perform


async def drive(steps: Steps, perform: Perform) -> Any:
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
            waits = perform(request)
            if waits is not None:
                answer = await waits
        except BaseException as raised:  # noqa: BLE001 - thrown into the core at the next step
            error = raised


class Turn(TurnHandle):
    """One turn of an asyncio agent; see `driver_sync.Turn` for what each method promises."""

    _t: Trajectory

    async def model(
        self, model: Any = None, tools: Sequence[Any] | None = None, *,
        messages: Sequence[Mapping[str, Any]] | None = None, purpose: str = "act",
        on_delta: Callable[[str], None] | None = None, retry: Retry = MODEL_RETRY,
        parameters: Mapping[str, Any] | None = None,
    ) -> Reply:  # fmt: skip
        """Ask the model. `on_delta` is provisional, and is called from the thread that sends."""
        ask = self._ask(model, tools, messages, purpose, on_delta, retry, parameters)
        reply: Reply = await self._t._drive(run_model(self._s, ask))
        return reply

    async def tools(self, calls: Sequence[ToolCall], limit: int = 8) -> list[Result]:
        """Run the calls of a reply beside each other; results in call order, all settled."""
        if not calls:
            return []
        results: list[Result] = await self._t._drive(run_tools(self._s, [call_given(call) for call in calls], limit))
        return results

    async def tool(self, call: ToolCall) -> Result:
        """Run one call of a reply."""
        return (await self.tools([call]))[0]

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, step: str = "") -> Result:
        """Make a call of the harness's own."""
        result: Result = await self._t._drive(run_call(self._s, name, arguments or {}, step))
        return result

    async def read(self, name: str, produce: Callable[[], Any]) -> Any:
        """Return what `produce` (a function or a coroutine function) gives, recorded."""
        return await self._t._drive(read_slowly(self._s, name, produce))

    async def spawn(self, agent: Callable[..., Any], name: str, *, task: Any, **options: Any) -> Outcome:
        """Run another agent as a child trajectory of its own; return its outcome.

        It draws on this trajectory's budget: on `budget={unit: amount}` of it, else on all that is left. Raises
        `BudgetExhausted` where less is left. What the child's own code raises passes through this agent too, which
        must not catch it; a resume goes on with the child.
        """
        return (await self.spawn_all([(agent, name, task)], **options))[0]

    async def spawn_all(
        self, children: Sequence[tuple[Callable[..., Any], str, Any] | Child], *, limit: int = 8, **options: Any
    ) -> list[Outcome]:
        """Run children (agent, name, task) beside each other; their outcomes in order, all ended.

        `options` go to each; `Child(agent, name, task, options)` has its own. What of the budget no child names is
        shared equally. A child that is parked parks this trajectory once the others have ended.
        """
        wanted = [one if isinstance(one, Child) else Child(*one, options) for one in children]

        async def run_child(child: Child, child_id: str, limits: Mapping[str, str]) -> Any:
            given = {**child.options, "budget": limits}
            return await self._t._spawn(child.agent, child_id, child.task, given)

        outcomes: list[Outcome] = await self._t._drive(run_spawns(self._s, wanted, run_child, limit))
        return outcomes


class Ending:
    """What `t.finish` and `t.fail` return: await it to go on only when the end is durable; else `arun` waits for it."""

    def __init__(self, t: Trajectory) -> None:
        self._t = t

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._t._drive(end_task(self._t._s)).__await__()


class Trajectory(TrajectoryHandle):
    """`t` of an asyncio agent. It belongs to the task that runs the agent."""

    def __init__(self, s: Session, perform: Perform, spawn: Callable[..., Any], **more: Any) -> None:
        super().__init__(s, **more)
        self._perform, self._spawn = perform, spawn

    async def turns(self, max: int = 200) -> AsyncIterator[Turn]:  # noqa: A002 - the public name
        """Yield the turns from the open one on, until the end is asked for or `max` turns were begun."""
        s = self._s
        number = s.loop.enter(s)
        served = s.turn == number
        while number < max and s.ended is None:
            if s.owner_now() != s.owner:
                raise Misuse("t.turns: a trajectory belongs to the task that runs it")
            if not served:
                if s.view.budget.frozen().allows({"turns": "1"}) is not None:
                    break
                await self._drive(s.loop.next(s, number))
            yield Turn(self, s, number)
            served = False
            number += 1
        if s.ended is None:
            s.exhausted = True

    def finish(self, result: Any = None) -> Ending:
        """End the task as completed; nothing may follow. `await` it to wait until the end is durable."""
        ask_for_end(self._s, "completed", result, "")
        return Ending(self)

    def fail(self, reason: str) -> Ending:
        """End the task as failed."""
        ask_for_end(self._s, "failed", None, reason)
        return Ending(self)

    def _drive(self, steps: Steps) -> Coroutine[Any, Any, Any]:
        return drive(steps, self._perform)


async def run(
    s: Session, order: Order, agent: Callable[..., Any], make: Callable[[Session, Perform], Trajectory],
    perform: Perform,
) -> Outcome:  # fmt: skip
    """Run, resume or report one trajectory; see `Journal.arun`."""
    s.owner_now = asyncio.current_task
    s.owner = asyncio.current_task()
    try:
        early: Outcome | None = await drive(prepare(s, order), perform)
        if early is not None:
            return early
        value, error = None, None
        try:
            value = await agent(make(s, perform))
        except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
            error = raised
        outcome: Outcome = await drive(conclude(s, value, error), perform)
        return outcome
    finally:
        abandon(s)
