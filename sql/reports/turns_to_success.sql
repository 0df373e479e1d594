-- turns_to_success: how many turns and how much time does a completed task take?
-- grain: one row per served model and system number
-- inputs: trajectories, served_models
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model         model that answered; `several` where more than one did
--   system_no            highest system number of the trajectory
--   completed            trajectories that ended completed
--   p50_turns            turns of completed ones, median
--   p95_turns            turns
--   p50_tool_calls       actions of completed ones, median
--   p50_minutes          minutes from start to end, median
--   p50_turns_otherwise  turns of those that ended otherwise, median
-- caveats: turns with nothing but given-up events are not counted; minutes are wall time with every wait in it;
--   sub-agents count as trajectories of their own.
select
    coalesce(served.served_model, 'unknown') as served_model,
    system_no,
    count(*) filter (where status = 'completed') as completed,
    quantile_cont(turns, 0.5) filter (where status = 'completed') as p50_turns,
    quantile_cont(turns, 0.95) filter (where status = 'completed') as p95_turns,
    quantile_cont(tool_calls, 0.5) filter (where status = 'completed') as p50_tool_calls,
    quantile_cont(epoch_us(ended_at - started_at) / 6e7, 0.5) filter (where status = 'completed') as p50_minutes,
    quantile_cont(turns, 0.5) filter (where status <> 'completed') as p50_turns_otherwise
from trajectories
left join served_models as served using (tenant, trajectory_id)
where kind <> 'judgement'
    and status not in ('open', 'expired')
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served.served_model, 'unknown'), system_no
order by served_model, system_no
