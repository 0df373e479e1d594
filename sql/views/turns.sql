-- turns: what happened in each turn.
-- grain: one row per trajectory and turn (turn -1 is the prologue)
-- inputs: events, model_calls, tool_calls
-- owner: pipelines
with spans as (
    select
        tenant,
        trajectory_id,
        turn,
        min(sequence_number) as first_sequence,
        max(sequence_number) as last_sequence,
        min(recorded_at) as started_at,
        max(recorded_at) as ended_at,
        count(*) as events,
        any_value(started_on) as started_on,
        any_value(model) as model
    from events
    group by tenant, trajectory_id, turn
),
replies as (
    select
        tenant,
        trajectory_id,
        turn,
        count(*) as model_calls,
        sum(input_tokens) as input_tokens,
        sum(output_tokens) as output_tokens,
        sum(cost_usd) as cost_usd
    from model_calls
    group by tenant, trajectory_id, turn
),
actions as (
    select
        tenant,
        trajectory_id,
        turn,
        count(*) as tool_calls,
        count(*) filter (where status = 'error') as tool_errors,
        count(*) filter (where stage = 'in_doubt') as in_doubt
    from tool_calls
    group by tenant, trajectory_id, turn
)
select
    spans.tenant,
    spans.trajectory_id,
    spans.turn,
    spans.first_sequence,
    spans.last_sequence,
    spans.started_at,
    spans.ended_at,
    spans.events,
    coalesce(replies.model_calls, 0) as model_calls,
    coalesce(actions.tool_calls, 0) as tool_calls,
    coalesce(actions.tool_errors, 0) as tool_errors,
    coalesce(actions.in_doubt, 0) as in_doubt,
    replies.input_tokens,
    replies.output_tokens,
    replies.cost_usd,
    spans.started_on,
    spans.model
from spans
left join replies using (tenant, trajectory_id, turn)
left join actions using (tenant, trajectory_id, turn)
