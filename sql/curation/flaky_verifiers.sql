-- flaky_verifiers: one version of a verifier that gave one trajectory different rewards.
-- grain: one row per judged trajectory, verifier and version
-- inputs: judgements
-- owner: pipelines
select
    judged_tenant,
    judged_trajectory_id,
    verifier,
    verifier_version,
    count(*) as judgements,
    min(value_number) as lowest,
    max(value_number) as highest
from judgements
where kind = 'reward'
group by judged_tenant, judged_trajectory_id, verifier, verifier_version
having min(value_number) <> max(value_number)
order by judged_tenant, judged_trajectory_id, verifier, verifier_version
