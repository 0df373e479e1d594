-- judged_reward: what do verifiers say about each model's trajectories?
-- grain: one row per served model, system number, verifier and its version
-- inputs: judgements, trajectories, served_models
-- owner: pipelines
-- range: day on which the judged trajectory started (UTC)
-- columns:
--   served_model      model that answered; `several` where more than one did
--   system_no         highest system number of the trajectory
--   verifier          verifier
--   verifier_version  its version
--   trajectories      trajectories judged
--   mean_reward       mean of the newest reward of each
--   sd_reward         standard deviation (sample)
--   min_reward        smallest
--   max_reward        largest
--   above_zero_share  0 to 1: trajectories with a reward above 0
-- caveats: the newest reward of a verifier version counts once per trajectory; what nobody judged is missing, not
--   0; versions of a verifier are never pooled.
with newest as (
    select
        judged_tenant as tenant,
        judged_trajectory_id as trajectory_id,
        verifier,
        coalesce(verifier_version, '') as verifier_version,
        arg_max(value_number, recorded_at) as reward
    from judgements
    where kind = 'reward'
    group by judged_tenant, judged_trajectory_id, verifier, coalesce(verifier_version, '')
)
select
    coalesce(served.served_model, 'unknown') as served_model,
    system_no,
    verifier,
    verifier_version,
    count(*) as trajectories,
    avg(reward) as mean_reward,
    stddev_samp(reward) as sd_reward,
    min(reward) as min_reward,
    max(reward) as max_reward,
    count(*) filter (where reward > 0) / count(*) as above_zero_share
from newest
join trajectories using (tenant, trajectory_id)
left join served_models as served using (tenant, trajectory_id)
where started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served.served_model, 'unknown'), system_no, verifier, verifier_version
order by served_model, system_no, verifier, verifier_version
