-- cost_per_success: what does one completed task cost?
-- grain: one row per served model and system number
-- inputs: trajectories, model_calls, served_models
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model        model that answered; `several` where more than one did
--   system_no           highest system number of the trajectory
--   ended               trajectories that ended
--   completed           of them completed
--   tokens              input and output tokens of all that ended
--   cost_usd            US dollars of all that ended
--   tokens_per_success  tokens / completed
--   usd_per_success     cost_usd / completed
-- caveats: what failed tasks took is in the price of a success, sub-agents are not in that of their caller; null
--   where no call states a price.
with spent as (
    select
        tenant,
        trajectory_id,
        sum(cost_usd) as cost_usd
    from model_calls
    group by tenant, trajectory_id
)
select
    coalesce(served.served_model, 'unknown') as served_model,
    system_no,
    count(*) as ended,
    count(*) filter (where status = 'completed') as completed,
    sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) as tokens,
    sum(cost_usd) as cost_usd,
    sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))
        / nullif(count(*) filter (where status = 'completed'), 0) as tokens_per_success,
    sum(cost_usd) / nullif(count(*) filter (where status = 'completed'), 0) as usd_per_success
from trajectories
left join served_models as served using (tenant, trajectory_id)
left join spent using (tenant, trajectory_id)
where kind <> 'judgement'
    and status not in ('open', 'expired')
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served.served_model, 'unknown'), system_no
order by served_model, system_no
