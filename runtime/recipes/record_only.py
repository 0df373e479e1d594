"""Record only: the model calls of a program that does not run in our loop, by wrapping its HTTP transport.

    with record_only.recording(journal, "nightly-report", task="the report") as record:
        client = OpenAI(http_client=httpx.Client(transport=record.wrap(httpx.HTTPTransport())))
        ...                                      # the program as it is

Each call is one turn: the messages it was shown, the request's parameters, the reply byte for byte, its failure.
Nothing is served, settled or retried: such a trajectory is evidence and training data; what tools answered are messages
in it. A stream is read whole before the program gets it. A call that an asyncio program gives up, or has under way when
the block ends, is recorded as failed. A program started again under the same id goes on in a new turn.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..agent.errors import Misuse
from ..journal import Journal
from .record_transport import Exchange, RecordingTransport


class Recording:
    """Takes exchanges from any thread; one thread of its own, which holds the trajectory, records them in turn."""

    def __init__(self) -> None:
        self.why = ""
        self.failure: BaseException | None = None
        self._calls: queue.SimpleQueue[Exchange | None] = queue.SimpleQueue()
        self._open: set[Exchange] = set()

    def wrap(self, inner: Any) -> RecordingTransport:
        """Return a transport that sends through `inner` and records. Where recording fails, so does the call."""
        return RecordingTransport(inner, self.hand_over)

    def hand_over(self, exchange: Exchange | None) -> None:
        """Record an exchange (None: the end); its `answer` is set when it is over."""
        if exchange is not None:
            self._open.add(exchange)
            exchange.answer.add_done_callback(lambda _: self._open.discard(exchange))
        self._calls.put(exchange)
        if self.failure is not None and exchange is not None:
            raise self.failure

    def end(self) -> None:
        """Record no more. What an event loop is to send fails: it may be the one of the caller, who then waits."""
        self.hand_over(None)
        for exchange in self._open.copy():
            if exchange.in_loop:
                exchange.fail(Misuse("the recording ended before the call was answered"))

    def agent(self, t: Any) -> None:
        """The agent of a recording: one turn for each exchange."""
        for turn in t.turns(max=sys.maxsize):
            exchange = self._calls.get()
            while exchange is not None and exchange.answer.done():
                exchange = self._calls.get()
            if exchange is None:
                t.fail(self.why) if self.why else t.finish()
                return
            exchange.record(t, turn)

    def keep(self, run: Callable[[Callable[..., Any]], Any]) -> None:
        """Run the agent; whatever ends it before the end was asked for is told to all who wait."""
        try:
            run(self.agent)
            self.failure = Misuse("the recording is over; record under another id")
        except BaseException as error:  # noqa: BLE001 - raised where the program waits
            self.failure = error
        while not self._calls.empty():
            if (left := self._calls.get()) is not None:
                left.fail(self.failure)


@contextlib.contextmanager
def recording(journal: Journal, trajectory_id: str, *, task: Any, **options: Any) -> Iterator[Recording]:
    """Record into a trajectory until the block ends: completed, or failed with the error that left the block."""
    record = Recording()
    again = {"close_turn": True, "because": "the recorded program was started again", **options}
    run = lambda agent: journal.run(agent, trajectory_id, task=task, **again)  # noqa: E731
    keeper = threading.Thread(target=record.keep, args=(run,), name="trajlake-recording")
    keeper.start()
    try:
        yield record
    except BaseException as error:
        record.why = f"{type(error).__name__}: {error}"
        raise
    finally:
        record.end()
        keeper.join()
    if record.failure is not None and not isinstance(record.failure, Misuse):
        raise record.failure
