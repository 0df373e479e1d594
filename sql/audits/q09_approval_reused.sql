-- Q09: single-use approval reused
-- proves: an approval for one dispatch served one action only
-- clauses: SOC 2 CC6.1, CC8.1
-- severity: high
-- grain: one row per approval
-- applies: live
-- needs: -
-- inputs: intents, approval_requests
-- owner: pipelines
-- An approval whose request is missing counts as single use.
with requests as (
    select tenant, trajectory_id, approval_id, bool_or(is_single_use) as is_single_use
    from approval_requests
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id, approval_id
)
select
    intent.tenant,
    intent.trajectory_id,
    max(intent.sequence_number) as sequence_number,
    arg_max(intent.action_id, intent.sequence_number) as action_id,
    intent.approval as object,
    array_agg(intent.sequence_number order by intent.sequence_number) as related,
    'used by ' || count(distinct intent.action_id) || ' actions' as detail
from intents as intent
left join requests as request
    on request.tenant = intent.tenant
        and request.trajectory_id = intent.trajectory_id
        and request.approval_id = intent.approval
where in_scope(intent.tenant, intent.started_on)
    and intent.approval is not null
    and coalesce(request.is_single_use, true)
group by intent.tenant, intent.trajectory_id, intent.approval
having count(distinct intent.action_id) > 1
