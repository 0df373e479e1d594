-- flaky_verifiers: which verifier gave one trajectory different rewards?
-- grain: one row per judged trajectory, verifier and version
-- inputs: judgements
-- owner: pipelines
-- range: day of the newest judgement (UTC)
-- columns:
--   judged_tenant         tenant of the trajectory
--   judged_trajectory_id  the trajectory
--   verifier              verifier
--   verifier_version      its version; null where it named none
--   judgements            rewards it gave
--   lowest                smallest of them
--   highest               largest of them
-- caveats: a verifier that ran once on everything cannot show here; versions are never compared with each other.
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
    and (max(recorded_at) at time zone 'UTC')::date >= coalesce(getvariable('report_from'), date '0001-01-01')
    and (max(recorded_at) at time zone 'UTC')::date <= coalesce(getvariable('report_to'), date '9999-12-31')
order by judged_tenant, judged_trajectory_id, verifier, verifier_version
