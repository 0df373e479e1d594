"""The decision table of a resume, as data: what is found, what is done, and the event that says so.

Source: design/agent.md, *Resume*. `tests/runtime/agent/test_resume_table.py` holds that each row has its tests; the
code stands in `enter.check_resumable`, `drift`, `authority`, `restore` and `resume`, in the order of these rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One row: `event` is the type that records the outcome, `tests` name what proves it."""

    found: str
    done: str
    event: str
    tests: tuple[str, ...]


ROWS: Final = (
    Row("schema newer, or not declared compatible", "refuse", "ResumeRefused",
        ("test_a_schema_that_cannot_be_resumed_is_refused",)),
    Row("log incomplete and not replicated", "refuse until a person accepts the loss", "ResumeRefused",
        ("test_a_log_whose_writer_is_missing_is_refused_until_a_person_accepts_the_loss",)),
    Row("untracked workspace on another host", "refuse", "ResumeRefused",
        ("test_an_untracked_workspace_on_another_host_is_refused_and_on_this_one_used_as_it_stands",)),
    Row("context hash differs", "refuse, or switch by policy", "DriftDetected",
        ("test_a_context_that_cannot_be_rebuilt_names_its_first_component",)),
    Row("authority expired, its session gone, or always asked", "approve again, for this resume", "ApprovalRequested",
        ("test_an_expired_principal_is_approved_again_before_anything_runs",
         "test_a_principal_bound_to_a_session_needs_the_session",
         "test_spending_part_of_a_budget_crosses_nothing_unless_the_policy_always_asks")),
    Row("files differ from the record", "restore and apply again", "Resumed",
        ("test_recorded_edits_are_applied_again_and_the_workspace_equals_the_lost_one",)),
    Row("a change that cannot be applied again", "roll back, or stop for a person", "RolledBack",
        ("test_an_unrecorded_deletion_is_rolled_back_where_the_policy_says_so",
         "test_an_unrecorded_deletion_is_left_to_a_person_by_default",
         "test_going_back_over_an_effect_outside_is_refused")),
    Row("an unsettled intent's arguments would mean something else", "refuse", "DriftDetected",
        ("test_arguments_of_a_doubtful_intent_that_would_mean_something_else_refuse_the_resume",)),
    Row("a source was withdrawn, or nobody can say", "refuse: restart only, or ask", "ResumeRefused",
        ("test_a_constraint_withdrawn_at_its_source_allows_a_restart_only",)),
    Row("model, prompt or tool schema changed", "switch, pin or refuse", "DriftDetected",
        ("test_another_model_is_switched_to_pinned_or_refused",
         "test_a_pinned_model_sees_the_tools_it_was_shown_while_the_code_goes_on",
         "test_changed_tools_policy_and_model_are_drift_and_raise_system_no")),
    Row("budget or principal offered anew", "the recorded one stands", "DriftDetected",
        ("test_a_principal_or_budget_offered_anew_is_drift_of_the_contract_and_the_recorded_one_stands",)),
    Row("the policy in force denies or asks; an unused approval expired", "decided at dispatch", "Authorized",
        ("test_the_policy_in_force_now_decides_about_calls_that_were_not_sent",
         "test_an_expired_unused_approval_is_asked_anew")),
    Row("observations past their half-life", "invalidate; the agent fetches and plans again", "ObservationInvalidated",
        ("test_observations_past_their_half_life_are_invalidated_at_the_seam",
         "test_aged_facts_are_named_to_the_agent_until_they_are_observed_again")),
)  # fmt: skip
