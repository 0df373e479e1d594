"""A gateway before a tool: one execution per key, old workers refused. Source: design/agent.md, *Gateway*.

It is write-ahead itself: the row of a key is durable before the call. What a repeat of a key meets:

| row | repeat |
|---|---|
| none | runs |
| started, its call lives | waits for it |
| started, nobody runs it | `EffectUnknown`, until a verdict *not executed* is posted |
| not executed (the call raised `NotExecuted`, or a verdict said so) | runs once more |
| done | the earlier result |
| any, with other arguments | `KeyConflict` |

A token lower than the highest announced or seen for the trajectory is refused first of all (`StaleToken`).

    gateway = Gateway("/var/lib/shop/gateway.sqlite")

    @gateway.guard
    def charge(order: str, cents: int, *, call: Call) -> dict: ...
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec

from trajlake.schemas.values import from_tree, to_tree

from .durable_folders import DurableFolders
from .env import REAL_ENV, Env
from .gateway_rows import Row, Rows
from .leases.generations import gateway_answer, gateway_believes_not_executed, gateway_refuses
from .tools import NotExecuted, ToolError

RESULT_SIZE_MAX_BYTES: Final = 4 * 1024 * 1024
WAIT_MAX_S: Final = 120.0
_POLL_S: Final = 0.05
_OWNER_AGE_MIN_S: Final = 60.0

F = TypeVar("F", bound=Callable[..., Any])


class GatewayError(Exception):
    """Root of the gateway's refusals. To a tool body each of them means *unknown*: an earlier attempt may have run."""


class StaleToken(GatewayError):
    """A higher token was announced or seen: this worker was superseded and must stop."""


class KeyConflict(GatewayError):
    """The key was used with other arguments, or by another trajectory."""


class EffectUnknown(GatewayError):
    """The call was started and nobody can say what became of it; it never runs again without a verdict."""


class ResultNotKept(GatewayError):
    """The effect was executed; its result was too large to keep."""


class VerdictRefused(GatewayError):
    """A verdict does not fit: no such call, it is running, or its result is known."""


class Caller(Protocol):
    """What a gateway must know of a call; `trajlake.runtime.Call` has it."""

    @property
    def tenant(self) -> str: ...
    @property
    def trajectory_id(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def arguments_hash(self) -> str: ...


class Kept(msgspec.Struct, frozen=True):
    """An earlier result: what `Started.done` was given."""

    kind: str
    result: bytes


class Started:
    """Leave to run, once. Say how it ended by exactly one of the three; saying nothing (a crash) leaves it unknown."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway, self._caller = gateway, caller

    def done(self, kind: str, result: bytes) -> None:
        """Keep the result, durably. Too large: keep that it ran."""
        if len(result) > self._gateway.result_size_max_bytes:
            kind, result = "not_kept", str(len(result)).encode()
        self._gateway._end(self._caller, "done", kind, result)

    def not_executed(self) -> None:
        """Nothing happened; the key may run again."""
        self._gateway._end(self._caller, "not_executed", "", b"")

    def lost(self) -> None:
        """Nobody knows; the row stays as it is, and repeats are told so."""
        self._gateway._forget(self._caller)


class Gateway:
    """One gateway process over the file at `path`. Any thread may call. Its folder is made if missing.

    `handler(request)`, if given, is what `send` guards, so that the object itself serves as a tool's `gateway=`.
    Results are kept until `prune`: a key must be known as long as its trajectory can be open.
    """

    def __init__(
        self,
        path: str,
        *,
        handler: Callable[[Any], Any] | None = None,
        env: Env = REAL_ENV,
        result_size_max_bytes: int = RESULT_SIZE_MAX_BYTES,
        wait_max_s: float = WAIT_MAX_S,
    ) -> None:
        self._path = env.absolute(path)
        self._env = env
        self._handler = handler
        self._rows = Rows(self._path, env)
        self._live: dict[tuple[str, str], threading.Event] = {}
        self._mutex = threading.Lock()
        self._owner = ""
        self._owner_pid = -1
        self._pause = threading.Event()
        self.result_size_max_bytes = result_size_max_bytes
        self.wait_max_s = wait_max_s
        DurableFolders(env, self._path.rpartition("/")[0]).ensure(f"{self._path}.owners")

    # -- fencing -----------------------------------------------------------------------------------------------

    def announce(self, tenant: str, trajectory_id: str, token: int) -> None:
        """Remember the token, durably: from now on every lower one is refused. Raises `StaleToken` if it is lower."""
        with self._rows.transaction() as connection:
            self._fence(connection, tenant, trajectory_id, token)

    def verdict_not_executed(self, tenant: str, trajectory_id: str, key: str, token: int) -> None:
        """Record that a started call did not happen: its key may run once more.

        Raises `StaleToken`, or `VerdictRefused` if the key is unknown, running, or known to have run.
        """
        with self._rows.transaction() as connection:
            self._fence(connection, tenant, trajectory_id, token)
            row = self._rows.find(connection, tenant, key)
            if row is None or row.trajectory_id != trajectory_id:
                raise VerdictRefused(f"key {key[:16]}: no such call here")
            if not gateway_believes_not_executed(row.state, is_running=row.state == "started" and self._is_live(row)):
                why = "it was executed, its result is known" if row.state == "done" else "it is running now"
                raise VerdictRefused(f"key {key[:16]}: {why}")
            self._rows.put(connection, self._changed(row, state="not_executed", token=token))

    # -- calls -------------------------------------------------------------------------------------------------

    def begin(self, caller: Caller) -> Started | Kept:
        """Return leave to run, or the earlier result; wait for a live call of the same key.

        On `Started` the row is durable. Raises `StaleToken`, `KeyConflict`, `EffectUnknown`.
        """
        waited_until_s = self._env.monotonic() + self.wait_max_s
        while True:
            try:
                found = self._try(caller)
            except sqlite3.Error:
                self._forget(caller)  # not committed: nothing runs here
                raise
            if not isinstance(found, Row):
                return found
            if self._env.monotonic() > waited_until_s:
                raise EffectUnknown(f"key {caller.key[:16]}: it has been running for {self.wait_max_s:.0f} s")
            with self._mutex:
                ended = self._live.get((caller.tenant, caller.key), self._pause)
            ended.wait(_POLL_S)

    def send(self, call: Caller, request: Any) -> Any:
        """Run the handler for `request` under the call's key; a repeat gets the earlier result."""
        handler = self._handler
        if handler is None:
            raise ValueError("this gateway has no handler: pass handler=, or use guard")
        return self._guarded(call, lambda: handler(request))

    def guard(self, function: F) -> F:
        """Decorate a function with a keyword-only `call`: it runs at most once per key. Results must be recordable.

        `NotExecuted` leaves the key free to run again, `ToolError` is kept as the result; any other exception leaves
        the outcome unknown.
        """
        parameter = inspect.signature(function).parameters.get("call")
        if parameter is None or inspect.iscoroutinefunction(function):
            raise ValueError(f"{function.__name__}: a guarded function is no coroutine and takes call=")

        @functools.wraps(function)
        def guarded(*arguments: Any, call: Caller, **named: Any) -> Any:
            return self._guarded(call, lambda: function(*arguments, call=call, **named))

        return guarded  # type: ignore[return-value]

    def prune(self, older_than_s: float) -> int:
        """Forget results older than that; return how many. Only for trajectories that have ended long since."""
        with self._rows.transaction() as connection:
            return self._rows.prune(connection, self._env.now_us() - int(older_than_s * 1e6))

    def close(self) -> None:
        self._rows.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _guarded(self, caller: Caller, run: Callable[[], Any]) -> Any:
        started = self.begin(caller)
        if isinstance(started, Kept):
            return _value_of(started)
        try:
            value = run()
            result = msgspec.json.encode(to_tree(value))
        except NotExecuted:
            started.not_executed()
            raise
        except ToolError as error:
            started.done("error", str(error).encode(errors="backslashreplace"))
            raise
        except BaseException:
            started.lost()
            raise
        started.done("ok", result)
        return value

    def _try(self, caller: Caller) -> Started | Kept | Row:
        """One look under the transaction: run, answer, or (a `Row`) somebody runs it now."""
        owner = self._claim_owner()
        place = (caller.tenant, caller.key)
        with self._rows.transaction() as connection:
            self._fence(connection, caller.tenant, caller.trajectory_id, caller.token)
            row = self._rows.find(connection, *place)
            if row is not None:
                if (row.arguments_hash, row.trajectory_id) != (caller.arguments_hash, caller.trajectory_id):
                    raise KeyConflict(f"key {caller.key[:16]} was used with other arguments")
                answer = gateway_answer(row.state, is_running=row.state == "started" and self._is_live(row))
                if answer == "kept":
                    return Kept(row.kind, row.result)
                if answer == "wait":
                    return row
                if answer == "unknown":
                    raise EffectUnknown(f"key {caller.key[:16]}: it was started, and nobody knows what became of it")
            self._rows.put(connection, self._fresh(caller, owner, 1 if row is None else row.runs + 1))
            with self._mutex:
                # Before the commit: whoever sees the row must see that its call lives.
                self._live[place] = threading.Event()
        return Started(self, caller)

    def _fresh(self, caller: Caller, owner: str, runs: int) -> Row:
        now_us = self._env.now_us()
        return Row(
            tenant=caller.tenant,
            key=caller.key,
            trajectory_id=caller.trajectory_id,
            arguments_hash=caller.arguments_hash,
            token=caller.token,
            state="started",
            owner=owner,
            runs=runs,
            started_at=now_us,
            changed_at=now_us,
            kind="",
            result=b"",
        )

    def _end(self, caller: Caller, state: Any, kind: str, result: bytes) -> None:
        try:
            with self._rows.transaction() as connection:
                row = self._rows.find(connection, caller.tenant, caller.key)
                if row is None or row.state != "started" or row.owner != self._owner:
                    raise EffectUnknown(f"key {caller.key[:16]}: its row was changed while it ran")
                self._rows.put(connection, self._changed(row, state=state, kind=kind, result=result))
        finally:
            self._forget(caller)

    def _forget(self, caller: Caller) -> None:
        with self._mutex:
            ended = self._live.pop((caller.tenant, caller.key), None)
        if ended is not None:
            ended.set()

    def _fence(self, connection: Any, tenant: str, trajectory_id: str, token: int) -> None:
        highest = self._rows.highest_token(connection, tenant, trajectory_id)
        if gateway_refuses(token, highest):
            raise StaleToken(f"trajectory {trajectory_id!r}: token {token} is lower than {highest}, the highest seen")
        if token > highest:
            self._rows.raise_token(connection, tenant, trajectory_id, token)

    def _changed(self, row: Row, **values: Any) -> Row:
        return msgspec.structs.replace(row, changed_at=self._env.now_us(), **values)

    def _is_live(self, row: Row) -> bool:
        """Whether a call still runs: here, or in another gateway process whose lock is held."""
        if row.owner == self._owner:
            with self._mutex:
                return (row.tenant, row.key) in self._live
        try:
            fd = self._env.open(f"{self._path}.owners/{row.owner}")
        except FileNotFoundError:
            return False
        try:
            return not self._env.flock(fd, exclusive=False)
        finally:
            self._env.close(fd)

    def _claim_owner(self) -> str:
        """Name this process, with a lock that ends with it. A forked child is a process of its own."""
        with self._mutex:
            if self._owner_pid != self._env.pid():
                self._tidy_owners()
                owner = self._env.random_bytes(16).hex()
                fd = self._env.open(f"{self._path}.owners/{owner}", write=True, create=True, exclusive=True)
                if not self._env.flock(fd, exclusive=True):
                    raise GatewayError(f"{self._path}.owners/{owner}: cannot be locked; does its disk know flock?")
                self._owner, self._owner_pid, self._live = owner, self._env.pid(), {}
            return self._owner

    def _tidy_owners(self) -> None:
        """Remove the locks of dead processes; a young one may be about to be taken."""
        for name in self._env.listdir(f"{self._path}.owners"):
            path = f"{self._path}.owners/{name}"
            with contextlib.suppress(FileNotFoundError):
                if self._env.now_us() - self._env.stat(path).modified_at_us > _OWNER_AGE_MIN_S * 1e6:
                    fd = self._env.open(path)
                    try:
                        if self._env.flock(fd, exclusive=True):
                            self._env.unlink(path)
                    finally:
                        self._env.close(fd)


def _value_of(kept: Kept) -> Any:
    if kept.kind == "error":
        raise ToolError(kept.result.decode())
    if kept.kind == "not_kept":
        raise ResultNotKept(f"it was executed; its result of {kept.result.decode()} bytes was too large to keep")
    return from_tree(msgspec.json.decode(kept.result))
