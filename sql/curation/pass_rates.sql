-- pass_rates: how often was each task solved?
-- grain: one row per task, verifier, its version, and model at the start
-- inputs: judgements, trajectories
-- owner: pipelines
-- range: day on which the judged trajectory started (UTC)
-- columns:
--   tenant            tenant
--   task              the task, as JSON text; null where it was not recorded
--   verifier          verifier
--   verifier_version  its version, empty where it named none
--   model_id          model at the start
--   attempts          trajectories judged
--   passed            trajectories with a reward of 1 or more
-- caveats: the newest reward of a verifier version counts once per trajectory; equal tasks are those of equal text; what
--   nobody judged is missing.
with newest as (
    select
        judged_tenant,
        judged_trajectory_id,
        verifier,
        coalesce(verifier_version, '') as verifier_version,
        last(value_number order by recorded_at, trajectory_id, sequence_number) as reward
    from judgements
    where kind = 'reward' and value_number is not null
    group by judged_tenant, judged_trajectory_id, verifier, coalesce(verifier_version, '')
)
select
    trajectories.tenant,
    trajectories.task,
    newest.verifier,
    newest.verifier_version,
    trajectories.model_id,
    count(*) as attempts,
    count(*) filter (where newest.reward >= 1) as passed
from newest
join trajectories
    on trajectories.tenant = newest.judged_tenant and trajectories.trajectory_id = newest.judged_trajectory_id
where trajectories.started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and trajectories.started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by trajectories.tenant, trajectories.task, newest.verifier, newest.verifier_version, trajectories.model_id
order by trajectories.tenant, trajectories.task, newest.verifier, newest.verifier_version, trajectories.model_id
