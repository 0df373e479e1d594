-- Q07: approval expired before dispatch
-- proves: an approval was still in force when it was used, by the journal's clock
-- clauses: SOC 2 CC6.1, CC8.1
-- severity: high
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, approval_requests
-- owner: pipelines
-- The one control that compares times. An approval that nobody requested is a finding; one without expiry never expires.
with requests as (
    select tenant, trajectory_id, approval_id, max(sequence_number) as requested_seq, min(expires_at) as expires_at
    from approval_requests
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id, approval_id
)
select
    intent.tenant,
    intent.trajectory_id,
    intent.sequence_number,
    intent.action_id,
    intent.approval as object,
    case when request.requested_seq is null then []::bigint[] else [request.requested_seq] end as related,
    case
        when request.requested_seq is null then 'the approval was never requested'
        else 'dispatched ' || coalesce(cast(intent.recorded_at as varchar), 'at an unknown time')
            || ', the approval expired ' || request.expires_at
    end as detail
from intents as intent
left join requests as request
    on request.tenant = intent.tenant
        and request.trajectory_id = intent.trajectory_id
        and request.approval_id = intent.approval
where in_scope(intent.tenant, intent.started_on)
    and intent.approval is not null
    and (
        request.requested_seq is null
        or (request.expires_at is not null and coalesce(intent.recorded_at > request.expires_at, true))
    )
