"""The state fold, event by event: what each leaves behind, what a roll-back does, parts, branches."""

from __future__ import annotations

import gc
import time

import msgspec
import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, Log, RandomLog, mail
from trajlake.schemas import events as e
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.history import branch_point
from trajlake.schemas.state import (
    FOLDS,
    NOT_FOLDED,
    Folder,
    RolledBackPast,
    State,
    fold,
    from_parts,
    inherit,
    initial,
    parts,
    records,
    state_bytes,
    state_from,
    state_hash,
)

START = initial(TENANT, TRAJECTORY)

GOLDEN = (
    '{"tenant":"default","trajectory_id":"run-1","sequence_number":4,"head_hash":"HASH","recorded_at":1700000'
    '240000000,"intent":{"goal":{"at":0,"value":{"text":"mend it"}},"first_goal":{"at":0,"value":{"text":"men'
    'd it"}}},"execution":{"started":{"origin":"live","model":"m","workspace":"none"},"turn":0,"turn_start":1'
    ',"reply":1,"actions":{"1.0":{"action_id":"1.0","tool":"pay","proposed":1,"turn":0,"by":"model","step":"p'
    'ay","arguments_hash":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","intent":2,"firs'
    't_intent":2,"intent_token":1,"intent_at":1700000120000000,"attempt":1,"key":"k1.0","effect":"external"}}'
    ',"budget":{"limits":{"usd":"1.5"},"spent":{"turns":"1","model_calls":"1","usd":"0.25","tool_calls":"1"},'
    '"held":{"1.0":{"usd":"1"}},"turn":0},"openings":[{"token":1,"start":0}],"tenure":{"token":1,"opened":0},'
    '"context":{"runs":[[[3,null,0,[1],1]]],"latest":{"built":3,"purpose":"act","length":1,"context_hash":"c"'
    ',"head":{}},"by_purpose":{"act":{"built":3,"purpose":"act","length":1,"context_hash":"c","head":{}}}},"v'
    'ars":{"phase":{"at":4,"value":"fix"}}}}'
)


def begun(**fields: object) -> Log:
    log = Log()
    log.add(e.TaskStarted(task={"text": "mend it"}, **fields))
    return log


def folded(log: Log) -> State:
    return fold(START, log.events)


def test_the_bytes_of_a_state_are_golden():
    log = begun(budget={"usd": "1.50"}, model="m")
    log.reply("pay", turn=0, cost={"usd": "0.25"})
    log.intent("1.0", reserved={"usd": "1"})
    log.add(e.ContextBuilt(context_hash="c", append=(1,)))
    log.add(e.VarSet(name="phase", value="fix"))
    state = folded(log)
    text = state_bytes(state).decode().replace(log.events[-1].hash.hex(), "HASH")
    assert text == GOLDEN


def test_every_event_type_is_folded_or_named_as_not_folded():
    assert FOLDS.keys() | NOT_FOLDED == e.TYPES.keys()
    assert not FOLDS.keys() & NOT_FOLDED


def test_defaults_are_values_of_which_there_is_one_so_bytes_depend_on_the_value_alone():
    structs = [one for one in vars(records).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    structs.remove(e.Predicate)  # the fold gives it its declared defaults; the next test
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            if field.default is not msgspec.NODEFAULT:
                small = isinstance(field.default, int) and -5 <= field.default <= 256
                assert field.default in (None, "", ()) or small, f"{struct.__name__}.{field.name}: {field.default!r}"


def test_a_predicate_that_spells_its_defaults_out_has_the_bytes_of_one_that_does_not():
    log = begun()
    said = log.add(e.ConstraintAccepted(constraint_id="c", text="t", predicate=e.Predicate(tool="x", verdict="ask")))
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    texts = []
    for spelt in (b'"predicate":{"tool":"*","verdict":"deny"}', b'"predicate":{}'):
        payload = b'{"constraint_id":"c","text":"t",' + spelt + b"}"
        texts.append(state_bytes(fold(START, [log.events[0], Event(**fields | {"payload": payload})])))
    assert texts[0] == texts[1] == state_bytes(state_from(texts[0]))


def test_bytes_survive_reading_and_writing_again():
    for seed in range(5):
        state = fold(START, RandomLog(seed, 120).events)
        assert state_bytes(state_from(state_bytes(state))) == state_bytes(state), f"seed {seed}"
        assert state_from(state_bytes(state)) == state
    assert state_bytes(fold(START, [])) == state_bytes(START)
    assert len(state_hash(START)) == 64
    with pytest.raises(InvalidEvent, match="state:"):
        state_from(b"[]")


def test_the_start_sets_goal_limits_opening_and_tenure():
    state = folded(begun(budget={"usd": "1.50"}, model="m", principal="p1"))
    assert state.intent.goal == state.intent.first_goal
    assert state.intent.goal.value == {"text": "mend it"}
    assert state.execution.budget.limits == {"usd": "1.5"}
    assert state.execution.started.principal == "p1"
    assert [(one.token, one.start, one.after_token) for one in state.execution.openings] == [(1, 0, None)]
    assert (state.sequence_number, state.execution.turn, state.execution.tenure.token) == (0, -1, 1)


def test_intent_state_keeps_what_was_withdrawn_beside_what_is_in_force():
    log = begun()
    log.add(e.GoalRevised(goal="other", because="asked"))
    log.add(e.ConstraintAccepted(constraint_id="c", text="no prod", predicate=e.Predicate(tool="deploy*")))
    log.add(e.AssumptionCommitted(assumption_id="a", text="main is green", rests_on=(1,)))
    log.add(e.ObligationOpened(obligation_id="o", text="tell ann"))
    log.add(e.PlanCommitted(plan=["one", "two"]))
    log.add(e.ObservationCached(observation_id="b", value="big", observed_at=5, half_life_s=60.0))
    intent = folded(log).intent
    assert (intent.goal.value, intent.first_goal.value) == ("other", {"text": "mend it"})
    assert intent.constraints["c"].predicate.tool == "deploy*"
    assert intent.plan.plan == ["one", "two"]
    assert intent.observations["b"].half_life_s == 60.0
    assert b"big" not in state_bytes(folded(log)), "an observation's value stays in its event"
    log.add(e.ConstraintWithdrawn(constraint_id="c", because="asked"))
    log.add(e.AssumptionRetracted(assumption_id="a"))
    log.add(e.ObligationDischarged(obligation_id="o", how="told"))
    log.add(e.ObservationInvalidated(observation_id="b"))
    log.add(e.ConstraintWithdrawn(constraint_id="never"))
    intent = folded(log).intent
    assert intent.constraints["c"].withdrawn == 7
    assert intent.assumptions["a"].retracted == 8
    assert (intent.obligations["o"].discharged, intent.obligations["o"].how) == (9, "told")
    assert intent.observations["b"].invalidated == 10
    assert "never" not in intent.constraints


def test_an_action_goes_from_proposal_to_outcome_by_its_id_alone():
    log = begun()
    log.add(e.ModelReplied(calls=(e.ProposedCall(tool="pay", provider_id="x"), e.ProposedCall(tool="pay"))), turn=0)
    log.add(e.Authorized(action_id="1.1", tool="pay", decision="allow", arguments_hash="h"))
    log.intent("1.1", step="pay twice", arguments_hash="h", deadline_at=99, provider_id="y")
    state = folded(log)
    first, second = state.execution.actions.values()
    assert (first.provider_id, first.authorized, first.intent, first.step) == ("x", None, None, "pay")
    assert (second.proposed, second.authorized, second.intent, second.outcome) == (1, 2, 3, None)
    assert (second.step, second.intent_token, second.deadline_at, second.key) == ("pay twice", 1, 99, "k1.1")
    log.add(e.ToolResult(action_id="1.1", status="ok", output="secret text", item_hash="i"))
    done = folded(log).execution.actions["1.1"]
    assert (done.outcome, done.outcome_kind, done.status, done.item_hash) == (4, "result", "ok", "i")
    assert done.executed
    assert b"secret text" not in state_bytes(folded(log))
    assert folded(log).execution.by_key == {"k1.1": "1.1"}


def test_a_new_attempt_clears_the_outcome_and_keeps_the_first_intent():
    log = begun()
    log.reply("pay", turn=0)
    log.intent("1.0")
    log.add(e.ToolResult(action_id="1.0", status="not_executed"))
    log.intent("1.0", attempt=2)
    action = folded(log).execution.actions["1.0"]
    assert (action.first_intent, action.intent, action.attempt, action.outcome, action.status) == (2, 4, 2, None, "")


def test_the_first_outcome_stands_and_a_later_one_is_late():
    log = begun()
    log.intent("1.0")
    log.add(e.ToolSettled(action_id="1.0", how="person", verdict="not_executed"))
    log.add(e.ToolSettled(action_id="1.0", how="probe", verdict="executed"))
    log.add(e.LateResult(action_id="1.0", decision="refused", mail=mail(1)))
    log.add(e.LateResult(action_id="9.0", decision="refused", mail=mail(2)))
    execution = folded(log).execution
    action = execution.actions["1.0"]
    assert (action.by, action.outcome, action.status, action.how, action.late) == (
        "harness",
        2,
        "not_executed",
        "person",
        4,
    )
    assert "9.0" not in execution.actions
    assert list(execution.mail) == ["m1", "m2"]


def test_a_late_result_settles_an_action_that_nothing_had_decided():
    log = begun()
    log.intent("1.0", asynchronous=True)
    log.add(e.TaskEnded(status="cancelled"))
    log.add(e.LateResult(action_id="1.0", decision="refused", mail=mail(1)))
    execution = folded(log).execution
    assert execution.actions["1.0"].outcome_kind == "late"
    assert (execution.ended.at, execution.ended.status) == (2, "cancelled")


def test_rejected_replies_propose_nothing():
    log = begun()
    log.reply("pay", status="rejected", turn=0)
    log.reply("pay", status="kept")
    assert list(folded(log).execution.actions) == ["2.0"]


def test_an_approval_is_asked_answered_once_and_used_once():
    log = begun()
    log.reply("pay", "pay", turn=0)
    log.add(e.ApprovalRequested(approval_id="p", action_id="1.0", tool="pay", arguments_hash="h", expires_at=7))
    for decision in ("granted", "denied"):
        log.add(e.ApprovalResolved(approval_id="p", action_id="1.0", decision=decision, approver="ann", mail=mail(1)))
    log.add(e.ApprovalResolved(approval_id="unknown", action_id="1.0", decision="granted", approver="ann"))
    approval = folded(log).execution.approvals["p"]
    assert (approval.requested, approval.resolved, approval.decision, approval.used) == (2, 3, "granted", None)
    log.intent("1.0", approval="p")
    log.intent("1.1", approval="p")
    assert folded(log).execution.approvals["p"].used == 6
    assert list(folded(log).execution.approvals) == ["p"]


def test_tenures_openings_switches_and_accepted_loss_are_kept():
    log = begun()
    log.add(e.LeaseReleased(token=1))
    assert folded(log).execution.tenure.released == 1
    log.opening()
    log.add(e.Resumed(last_sequence=1, accept_loss=True))
    log.add(e.DriftDetected(what="model", choice="switch"))
    log.add(e.DriftDetected(what="prompt", choice="pin"))
    log.add(e.ResumeRefused(reason="schema"))
    execution = folded(log).execution
    assert (execution.tenure.token, execution.tenure.opened, execution.tenure.released) == (2, 2, None)
    assert [(one.token, one.start, one.after_token) for one in execution.openings] == [(1, 0, None), (2, 2, 1)]
    assert (execution.loss_accepted, execution.system_no, execution.refused) == (3, 1, "schema")
    assert [one.what for one in execution.switches] == ["model"]


def test_vars_end_with_their_deletion_and_context_is_kept_by_reference():
    log = begun()
    log.add(e.VarSet(name="a", value={"deep": [1, 2.0]}))
    log.add(e.VarSet(name="b", value=None))
    log.add(e.VarSet(name="a", deleted=True))
    log.add(e.ContextBuilt(context_hash="h", append=(1, 2), head=e.ContextHead(system="s")))
    log.add(e.ContextBuilt(context_hash="i", base=4, keep=1, append=(3,), purpose="sum"))
    execution = folded(log).execution
    assert list(execution.vars) == ["b"]
    assert execution.context.latest.context_hash == "i"
    assert execution.context.by_purpose["act"].head.system == "s"
    assert execution.context.builds().items(5) == [1, 3]


def test_a_roll_back_leaves_turns_out_and_keeps_spend_authority_and_mail():
    log = begun(budget={"turns": "9", "usd": "2"})
    log.add(e.VarSet(name="a", value=1), turn=0)
    at = log.checkpoint()
    log.reply("pay", turn=1, cost={"usd": "0.5"})
    log.add(e.VarSet(name="a", value=2))
    log.add(e.Authorized(action_id="3.0", tool="pay", decision="allow", arguments_hash="h"))
    log.add(e.Authorized(action_id="6.0", tool="git", decision="allow", arguments_hash="h"))
    log.add(e.MessageAdded(role="user", wire={}, item_hash="", mail=mail(1)))
    log.add(e.BudgetRevised(limits={"usd": "3"}))
    before = folded(log)
    log.roll_back(at, 0)
    after = folded(log)
    assert (before.execution.turn, after.execution.turn) == (1, 0)
    assert after.execution.vars["a"].value == 1
    assert after.execution.actions == {}, "an authorization does not bring a given-up action back"
    assert list(after.execution.mail) == ["m1"]
    assert after.execution.budget.limits == {"turns": "9", "usd": "3"}
    assert after.execution.budget.spent == {"turns": "2", "model_calls": "1", "usd": "0.5"}
    log.reply(turn=1)
    assert folded(log).execution.budget.spent["turns"] == "3", "a turn done again is spent again"
    assert folded(log).execution.rolled_back == ((9, at, 8),)


def test_a_state_that_a_roll_back_voids_is_refused_by_name():
    log = begun()
    at = log.checkpoint()
    log.add(e.VarSet(name="a", value=1), turn=0)
    void = log.checkpoint()
    log.roll_back(at, -1)
    with pytest.raises(RolledBackPast, match=f"fold from the checkpoint at {at}") as caught:
        fold(fold(START, log.events[: void + 1]), log.events[void + 1 :])
    assert caught.value.to == at
    on_good = fold(fold(START, log.events[: at + 1]), log.events[at + 1 :])
    assert state_bytes(on_good) == state_bytes(folded(log))


@pytest.mark.parametrize("change", ["number", "tenant", "erased", "type"])
def test_events_that_do_not_follow_are_refused(change: str):
    log = begun()
    good = log.add(e.InputRead(kind="now"))
    fields = {name: getattr(good, name) for name in good.__struct_fields__}
    fields |= {
        "number": {"sequence_number": 3},
        "tenant": {"tenant": "other"},
        "erased": {"payload": None},
        "type": {"type": "NewThing"},
    }[change]
    with pytest.raises(InvalidEvent):
        fold(START, [log.events[0], Event(**fields)])


def test_parts_give_the_state_back_and_old_runs_do_not_change():
    log = begun()
    for turn in range(1_030):
        log.add(
            e.ContextBuilt(context_hash="", base=log.next - 3 if turn else None, keep=2 * turn, append=(1, 2)), turn
        )
        log.reply("pay", "pay")
        log.add(e.MessageAdded(role="user", wire={}, item_hash="", mail=mail(turn)))
    earlier, later = parts(fold(START, log.events[:-90])), parts(folded(log))
    assert state_bytes(from_parts(later)) == state_bytes(folded(log))
    assert {"head", "intent", "approvals", "vars", "actions/0", "actions/2", "context/0", "context/3"} <= later.keys()
    for name in ("actions/0", "context/0", "mail/0", "intent", "vars"):
        assert earlier[name] == later[name], f"{name} changed"
    with pytest.raises(InvalidEvent, match="part 'vars' is missing"):
        from_parts({name: text for name, text in later.items() if name != "vars"})
    with pytest.raises(InvalidEvent, match="cannot be read"):
        from_parts(later | {"vars": b"["})


def test_a_branch_folds_its_parents_prefix_then_its_own():
    log = begun(budget={"usd": "1"})
    log.reply("pay", turn=0)
    log.intent("1.0")
    log.add(e.ToolResult(action_id="1.0", status="ok"))
    log.add(e.ContextBuilt(context_hash="h", append=(1, 3)))
    log.add(e.AssumptionCommitted(assumption_id="a", text="t", rests_on=(1,)))
    log.add(e.VarSet(name="a", value=1))
    log.reply(turn=1)
    parent = fold(START, log.events[: branch_point(log.events, 1) + 1])
    child = Log("branch")
    child.add(e.TaskStarted(task="changed", budget={"usd": "9"}))
    last = log.events[6]
    child.add(
        e.Branched(
            parent_tenant=TENANT,
            parent_trajectory_id=TRAJECTORY,
            parent_sequence=6,
            parent_hash=last.hash.hex(),
            at_turn=1,
        )
    )
    child.add(e.ContextBuilt(context_hash="i", base=(1, 4), keep=2, append=(1,)), turn=1)
    state = fold(inherit(parent, TENANT, "branch"), child.events)
    action = state.execution.actions["^1:1.0"]
    assert (action.proposed, action.intent, action.outcome, action.inherited) == ((1, 1), (1, 2), (1, 3), True)
    assert state.intent.goal.at == (1, 0)
    assert state.intent.assumptions["a"].rests_on == ((1, 1),)
    assert (state.execution.vars["a"].at, state.execution.budget.limits) == ((1, 6), {"usd": "9"})
    assert state.execution.branched.at_turn == 1
    assert state.execution.budget.spent == {"turns": "1"}, "turns of its own"
    assert state.execution.context.builds().items(2) == [(1, 1), (1, 3), 1]
    again = inherit(state, TENANT, "twig")
    assert again.execution.actions["^2:1.0"].intent == (2, 2)
    assert state_bytes(from_parts(parts(state))) == state_bytes(state)


def test_the_fold_is_fast_and_its_cost_per_turn_does_not_grow():
    log = begun()
    for number in range(20_000):
        log.add(e.InputRead(kind="now", value=number), 0)
    began = time.process_time()
    folded(log)
    assert len(log.events) / (time.process_time() - began) > 100_000, "events a second"
    turns, quarter = Log(), 1_500
    turns.add(e.TaskStarted())
    for turn in range(4 * quarter):
        turns.add(e.ContextBuilt(context_hash="", base=turns.next - 2 if turn else None, keep=turn, append=(1,)), turn)
        turns.reply("pay")
    folder, times = Folder(START), []
    gc.collect()
    gc.disable()  # a collection walks everything that earlier tests left behind
    for first in range(0, len(turns.events), 2 * quarter):
        began = time.process_time()
        for one in turns.events[first : first + 2 * quarter]:
            folder.apply(one)
        times.append(time.process_time() - began)
    gc.enable()
    assert times[3] < 3 * times[0] + 0.05, f"seconds per quarter: {times}"


def test_freezing_shares_what_did_not_change():
    log = begun()
    log.reply("pay", turn=0)
    folder = Folder(START)
    folder.extend(log.events)
    one = folder.state()
    folder.apply(log.add(e.VarSet(name="a", value=1)))
    two = folder.state()
    assert one.execution.actions is two.execution.actions
    assert one.execution.vars == {}
    assert folder.sequence_number == 2
    assert folder.action("1.0") == two.execution.actions["1.0"]
    assert len(folder.builds) == 0
