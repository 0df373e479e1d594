-- pass_rates: how often each task was solved, by verifier, version and model.
-- grain: one row per task, verifier, version and model at the start
-- inputs: judgements, trajectories
-- owner: pipelines
-- A reward of 1 or more passes; the newest judgement of a trajectory counts.
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
group by trajectories.tenant, trajectories.task, newest.verifier, newest.verifier_version, trajectories.model_id
order by trajectories.tenant, trajectories.task, newest.verifier, newest.verifier_version, trajectories.model_id
