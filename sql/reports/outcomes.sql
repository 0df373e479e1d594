-- outcomes: how do trajectories end?
-- grain: one row per served model and system number
-- inputs: trajectories, served_models
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model     model that answered; `several` where more than one did, `unknown` where none is named
--   system_no        highest system number of the trajectory
--   trajectories     trajectories
--   open             not ended
--   completed        ended completed
--   failed           ended failed
--   cancelled        ended cancelled
--   interrupted      imports that break off
--   completed_share  0 to 1: completed / ended
-- caveats: completed is what the agent says; judged_reward is what a verifier says; judgement trajectories and
--   expired ones are left out.
select
    coalesce(served.served_model, 'unknown') as served_model,
    system_no,
    count(*) as trajectories,
    count(*) filter (where status = 'open') as open,
    count(*) filter (where status = 'completed') as completed,
    count(*) filter (where status = 'failed') as failed,
    count(*) filter (where status = 'cancelled') as cancelled,
    count(*) filter (where status = 'interrupted') as interrupted,
    count(*) filter (where status = 'completed') / nullif(count(*) filter (where status <> 'open'), 0)
        as completed_share
from trajectories
left join served_models as served using (tenant, trajectory_id)
where kind <> 'judgement'
    and status <> 'expired'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served.served_model, 'unknown'), system_no
order by served_model, system_no
