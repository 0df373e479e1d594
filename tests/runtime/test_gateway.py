"""One execution per key, whoever asks again; old tokens refused; a crash leaves a row that says unknown."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from trajlake.runtime.gateway import (
    EffectUnknown,
    Gateway,
    KeyConflict,
    ResultNotKept,
    StaleToken,
    VerdictRefused,
)
from trajlake.runtime.tools import Call, NotExecuted, ToolError


def call(key="k1", token=1, arguments_hash="h1", trajectory_id="t", tenant="default") -> Call:
    return Call(
        tool="pay", key=key, token=token, attempt=1, tenant=tenant, trajectory_id=trajectory_id, action_id="1.0",
        arguments_hash=arguments_hash,
    )  # fmt: skip


@pytest.fixture
def gateway(tmp_path):
    gateway = Gateway(str(tmp_path / "gateway.sqlite"), wait_max_s=10)
    yield gateway
    gateway.close()


def guarded(gateway, ran, effect=lambda cents: {"paid": cents}):
    @gateway.guard
    def pay(cents, *, call):
        ran.append(call.key)
        return effect(cents)

    return pay


def test_a_repeat_gets_the_earlier_result_and_nothing_runs_again(gateway, tmp_path):
    ran: list = []
    pay = guarded(gateway, ran, lambda cents: {"paid": cents, "raw": b"\x00", "when": (1, 2)})
    first = pay(5, call=call())
    assert pay(5, call=call()) == first == {"paid": 5, "raw": b"\x00", "when": (1, 2)}
    again = guarded(Gateway(str(tmp_path / "gateway.sqlite")), ran)  # another process, later
    assert again(5, call=call()) == first
    assert ran == ["k1"]


def test_two_keys_are_two_effects_and_tenants_do_not_share_them(gateway):
    ran: list = []
    pay = guarded(gateway, ran)
    pay(5, call=call("k1"))
    pay(5, call=call("k2"))
    pay(5, call=call("k1", tenant="other"))
    assert ran == ["k1", "k2", "k1"]


def test_one_key_with_other_arguments_or_of_another_trajectory_is_refused(gateway):
    ran: list = []
    pay = guarded(gateway, ran)
    pay(5, call=call())
    for other in (call(arguments_hash="h2"), call(trajectory_id="u")):
        with pytest.raises(KeyConflict):
            pay(6, call=other)
    assert ran == ["k1"]


def test_a_lower_token_than_announced_or_seen_is_refused(gateway):
    ran: list = []
    pay = guarded(gateway, ran)
    gateway.announce("default", "t", 3)
    with pytest.raises(StaleToken, match="lower than 3"):
        pay(5, call=call(token=2))
    pay(5, call=call(token=4))
    with pytest.raises(StaleToken):
        gateway.announce("default", "t", 3)
    with pytest.raises(StaleToken):
        pay(5, call=call("k2", token=3))
    pay(5, call=call("k2", token=4))
    pay(5, call=call("k3", token=1, trajectory_id="u"))
    assert ran == ["k1", "k2", "k3"]


def test_not_executed_frees_the_key_and_a_tool_error_is_kept(gateway):
    answers = [NotExecuted("busy"), ToolError("card refused"), "never"]
    ran: list = []

    def effect(cents):
        raise answers[len(ran) - 1]

    pay = guarded(gateway, ran, effect)
    with pytest.raises(NotExecuted):
        pay(5, call=call())
    for _ in range(2):
        with pytest.raises(ToolError, match="card refused"):
            pay(5, call=call())
    assert len(ran) == 2


@pytest.mark.parametrize("error", [RuntimeError("?"), TimeoutError(), KeyboardInterrupt(), OSError("reset")])
def test_any_other_exception_leaves_it_unknown_until_a_verdict_and_then_it_runs_once_more(gateway, error):
    ran: list = []

    def effect(cents):
        if len(ran) < 3:
            raise error
        return "paid"

    pay = guarded(gateway, ran, effect)
    with pytest.raises(type(error)):
        pay(5, call=call())
    for _ in range(3):
        with pytest.raises(EffectUnknown):
            pay(5, call=call())
    for number in (2, 3):
        gateway.verdict_not_executed("default", "t", "k1", 1)
        gateway.verdict_not_executed("default", "t", "k1", 1)
        if number == 2:
            with pytest.raises(type(error)):
                pay(5, call=call())
            with pytest.raises(EffectUnknown):
                pay(5, call=call())
    assert pay(5, call=call()) == "paid"
    assert len(ran) == 3


def test_a_verdict_must_fit_the_call_and_carry_the_highest_token(gateway):
    ran: list = []
    pay = guarded(gateway, ran)
    with pytest.raises(VerdictRefused, match="no such call"):
        gateway.verdict_not_executed("default", "t", "k1", 1)
    pay(5, call=call(token=3))
    with pytest.raises(VerdictRefused, match="was executed"):
        gateway.verdict_not_executed("default", "t", "k1", 3)
    with pytest.raises(StaleToken):
        gateway.verdict_not_executed("default", "t", "k1", 2)
    assert pay(5, call=call(token=3)) == {"paid": 5}


def test_concurrent_repeats_wait_for_the_one_that_runs_and_a_verdict_about_it_is_refused(gateway, tmp_path):
    ran: list = []
    inside, go = threading.Event(), threading.Event()

    def effect(cents):
        inside.set()
        go.wait(10)
        return "paid"

    pay = guarded(gateway, ran, effect)
    answers: list = []
    threads = [threading.Thread(target=lambda: answers.append(pay(5, call=call()))) for _ in range(3)]
    threads[0].start()
    assert inside.wait(5)
    for thread in threads[1:]:
        thread.start()
    elsewhere = Gateway(str(tmp_path / "gateway.sqlite"))
    for gate in (gateway, elsewhere):
        with pytest.raises(VerdictRefused, match="running"):
            gate.verdict_not_executed("default", "t", "k1", 1)
    other = threading.Thread(target=lambda: answers.append(guarded(elsewhere, ran)(5, call=call())))
    other.start()
    time.sleep(0.2)
    assert answers == []
    go.set()
    for thread in [*threads, other]:
        thread.join(10)
    assert answers == ["paid"] * 4
    assert ran == ["k1"]


def test_a_repeat_does_not_wait_for_ever(tmp_path):
    gateway = Gateway(str(tmp_path / "g.sqlite"), wait_max_s=0.2)
    go = threading.Event()
    pay = guarded(gateway, [], lambda cents: go.wait(10))
    first = threading.Thread(target=lambda: pay(5, call=call()))
    first.start()
    time.sleep(0.1)
    with pytest.raises(EffectUnknown, match="running"):
        pay(5, call=call())
    go.set()
    first.join()


def test_a_result_too_large_to_keep_still_counts_as_executed(tmp_path):
    gateway = Gateway(str(tmp_path / "g.sqlite"), result_size_max_bytes=100)
    ran: list = []
    pay = guarded(gateway, ran, lambda cents: "x" * 1000)
    assert pay(5, call=call()) == "x" * 1000
    with pytest.raises(ResultNotKept, match="1002 bytes"):
        pay(5, call=call())
    with pytest.raises(VerdictRefused):
        gateway.verdict_not_executed("default", "t", "k1", 1)
    assert len(ran) == 1


def test_a_result_that_cannot_be_recorded_leaves_it_unknown_not_free(gateway):
    ran: list = []
    pay = guarded(gateway, ran, lambda cents: object())
    with pytest.raises(ValueError, match="object"):
        pay(5, call=call())
    with pytest.raises(EffectUnknown):
        pay(5, call=call())
    assert len(ran) == 1


def test_old_results_are_forgotten_on_demand_and_open_calls_never(gateway):
    pay = guarded(gateway, [])
    pay(5, call=call("done"))
    with pytest.raises(ZeroDivisionError):
        guarded(gateway, [], lambda cents: 1 / 0)(5, call=call("open"))
    assert gateway.prune(older_than_s=3600) == 0
    time.sleep(0.01)
    assert gateway.prune(older_than_s=0) == 1
    with pytest.raises(EffectUnknown):
        pay(5, call=call("open"))


def test_as_a_tools_gateway_it_guards_its_handler(tmp_path):
    ran: list = []
    gateway = Gateway(str(tmp_path / "g.sqlite"), handler=lambda request: ran.append(request) or {"ok": request})
    assert gateway.send(call(), 7) == gateway.send(call(), 7) == {"ok": 7}
    assert ran == [7]
    with pytest.raises(ValueError, match="handler"):
        Gateway(str(tmp_path / "h.sqlite")).send(call(), 7)


def test_what_cannot_be_guarded_is_refused_when_decorated(gateway):
    async def later(*, call):
        pass

    for function in (later, lambda cents: cents):
        with pytest.raises(ValueError, match="call"):
            gateway.guard(function)


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "g.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 9")
    with pytest.raises(ValueError, match="format 9"):
        Gateway(str(path)).announce("default", "t", 1)


def test_every_commit_is_synced_before_it_returns(gateway):
    """SQLite does the syncing: what is ours is to ask for it, in each process that opens the file."""
    with gateway._rows.transaction() as connection:
        assert connection.execute("pragma synchronous").fetchone() == (2,)
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


def test_files_are_private(gateway, tmp_path):
    guarded(gateway, [])(5, call=call())
    for path in tmp_path.glob("gateway.sqlite*"):
        assert path.stat().st_mode & 0o077 == 0, path


# -- processes -------------------------------------------------------------------------------------------------------

SERVICE = """
import os, signal, sys, time
from trajlake.runtime.gateway import Gateway
from trajlake.runtime.tools import Call
path, where, effects = sys.argv[1:4]
gateway = Gateway(path)
if where == "before":
    # The row is written and committed when `begin` returns; the call has not begun.
    begin = gateway.begin
    def killed(caller):
        started = begin(caller)
        os.kill(os.getpid(), signal.SIGKILL)
        return started
    gateway.begin = killed

@gateway.guard
def pay(cents, *, call):
    with open(effects, "a") as file:
        file.write("x")
    if where == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

pay(5, call=Call(tool="pay", key="k1", token=1, attempt=1, tenant="default", trajectory_id="t", action_id="1.0",
                 arguments_hash="h1"))
if where == "after":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("where", "effects"), [("before", 0), ("inside", 1), ("after", 1)])
def test_after_a_kill_between_row_and_call_in_it_or_after_it_nothing_runs_twice(tmp_path, where, effects):
    path, account = str(tmp_path / "g.sqlite"), tmp_path / "effects"
    account.touch()
    done = subprocess.run([sys.executable, "-c", SERVICE, path, where, str(account)], check=False)
    assert done.returncode == -signal.SIGKILL
    gateway = Gateway(path)
    ran: list = []
    pay = guarded(gateway, ran, lambda cents: "paid")
    if where == "after":
        assert pay(5, call=call()) == "paid"
    else:
        with pytest.raises(EffectUnknown):
            pay(5, call=call())
    assert (len(account.read_text()), ran) == (effects, [])
    if where == "before":
        gateway.verdict_not_executed("default", "t", "k1", 1)
        assert pay(5, call=call(token=2)) == "paid"
        assert ran == ["k1"]


def test_of_many_processes_that_race_for_one_key_exactly_one_runs(tmp_path):
    path, account = str(tmp_path / "g.sqlite"), tmp_path / "effects"
    account.touch()
    racers = [subprocess.Popen([sys.executable, "-c", SERVICE, path, "", str(account)]) for _ in range(6)]
    assert [racer.wait(30) for racer in racers] == [0] * 6
    assert account.read_text() == "x"


def _old_worker(path, wake, answers):
    gateway = Gateway(path)
    pay = guarded(gateway, [], lambda cents: "paid")
    answers.put("ready")
    while True:
        key = wake.get()
        if key is None:
            return
        os.kill(os.getpid(), signal.SIGSTOP)  # paused between its lease check and its send
        try:
            pay(5, call=call(key, token=int(key), trajectory_id=key))
            answers.put("ran")
        except StaleToken:
            answers.put("refused")


def test_a_worker_that_wakes_after_a_take_over_is_refused_100_of_100(tmp_path):
    path = str(tmp_path / "g.sqlite")
    context = multiprocessing.get_context("spawn")
    wake, answers = context.Queue(), context.Queue()
    worker = context.Process(target=_old_worker, args=(path, wake, answers))
    worker.start()
    assert answers.get(timeout=30) == "ready"
    successor = Gateway(path)
    refused = 0
    for number in range(1, 101):
        wake.put(str(number))
        while True:
            _, status = os.waitpid(worker.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                break
        successor.announce("default", str(number), number + 1)  # has dispatched nothing yet
        os.kill(worker.pid, signal.SIGCONT)
        refused += answers.get(timeout=30) == "refused"
    wake.put(None)
    worker.join(30)
    assert refused == 100
