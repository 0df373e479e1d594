-- time_shares: where does the wall time of a trajectory go?
-- grain: one row per served model and system number
-- inputs: trajectories, model_calls, tool_calls, approvals, served_models
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model    model that answered; `several` where more than one did
--   system_no       highest system number of the trajectory
--   trajectories    trajectories
--   wall_s          seconds from first to last event
--   model_s         seconds in model calls that report them
--   tool_s          seconds in tools
--   approval_s      seconds from request to answer of approvals
--   model_share     0 to 1: model_s / wall_s
--   tool_share      0 to 1: tool_s / wall_s
--   approval_share  0 to 1: approval_s / wall_s
-- caveats: work side by side adds up, so shares may pass 1 together; the rest is the harness, queues and the time
--   between a crash and its resume; imports often report no durations.
with thinking as (
    select tenant, trajectory_id, sum(duration_ms) / 1000 as model_s
    from model_calls
    group by tenant, trajectory_id
),
acting as (
    select
        tenant,
        trajectory_id,
        sum(coalesce(duration_ms, case when settled_seq is null then epoch_us(result_at - intent_at) / 1000 end)) / 1000
            as tool_s
    from tool_calls
    where status in ('ok', 'error')
    group by tenant, trajectory_id
),
waiting as (
    select tenant, trajectory_id, sum(epoch_us(resolved_at - requested_at) / 1e6) as approval_s
    from approvals
    group by tenant, trajectory_id
),
each as (
    select
        coalesce(served.served_model, 'unknown') as served_model,
        system_no,
        epoch_us(last_event_at - started_at) / 1e6 as wall_s,
        coalesce(model_s, 0) as model_s,
        coalesce(tool_s, 0) as tool_s,
        coalesce(approval_s, 0) as approval_s
    from trajectories
    left join served_models as served using (tenant, trajectory_id)
    left join thinking using (tenant, trajectory_id)
    left join acting using (tenant, trajectory_id)
    left join waiting using (tenant, trajectory_id)
    where kind <> 'judgement'
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
)
select
    served_model,
    system_no,
    count(*) as trajectories,
    sum(wall_s) as wall_s,
    sum(model_s) as model_s,
    sum(tool_s) as tool_s,
    sum(approval_s) as approval_s,
    sum(model_s) / nullif(sum(wall_s), 0) as model_share,
    sum(tool_s) / nullif(sum(wall_s), 0) as tool_share,
    sum(approval_s) / nullif(sum(wall_s), 0) as approval_share
from each
group by served_model, system_no
order by served_model, system_no
