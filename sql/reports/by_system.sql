-- by_system: how does behaviour differ before and after a switch of model, prompt or tools?
-- grain: one row per system number
-- inputs: model_calls, tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   system_no               system number: 0, raised by every switch
--   trajectories            trajectories with a call under it
--   model_calls             kept calls
--   input_tokens_per_call   tokens, mean of those that report
--   output_tokens_per_call  tokens, mean
--   tool_calls              actions
--   tools_per_reply         actions / kept calls
--   tool_error_share        0 to 1: errors / actions with an outcome
-- caveats: numbers count within a trajectory: number 1 of two trajectories need not be the same system (see
--   drift_detected for what was switched); given-up work is left out.
with calls as (
    select
        system_no,
        count(distinct (tenant, trajectory_id)) as trajectories,
        count(*) as model_calls,
        avg(input_tokens) as input_tokens_per_call,
        avg(output_tokens) as output_tokens_per_call
    from model_calls
    where status = 'kept'
        and not given_up
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
    group by system_no
),
actions as (
    select
        system_no,
        count(*) as tool_calls,
        count(*) filter (where status = 'error') / nullif(count(status), 0) as tool_error_share
    from tool_calls
    where not given_up
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
    group by system_no
)
select
    system_no,
    coalesce(trajectories, 0) as trajectories,
    coalesce(model_calls, 0) as model_calls,
    input_tokens_per_call,
    output_tokens_per_call,
    coalesce(tool_calls, 0) as tool_calls,
    coalesce(tool_calls, 0) / nullif(model_calls, 0) as tools_per_reply,
    tool_error_share
from calls
full join actions using (system_no)
order by system_no
