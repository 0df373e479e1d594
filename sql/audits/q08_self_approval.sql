-- Q08: approver is the requester
-- proves: whoever granted an approval is neither who asked nor the person on whose behalf the agent asked
-- clauses: SOC 2 CC6.1, CC8.1; ISO 42001 A.6.2.8
-- severity: high
-- grain: one row per ApprovalResolved
-- applies: live
-- needs: -
-- inputs: approval_resolutions, approval_requests, audited
-- owner: pipelines
select
    answer.tenant,
    answer.trajectory_id,
    answer.sequence_number,
    coalesce(answer.action_id, request.action_id) as action_id,
    answer.approval_id as object,
    case when request.sequence_number is null then []::bigint[] else [request.sequence_number] end as related,
    case
        when request.sequence_number is null then 'nobody requested this approval'
        when answer.approver is null then 'the approver is not recorded'
        when request.requester is null then 'the requester is not recorded'
        when answer.approver = request.requester then 'approved by its requester'
        else 'approved by the person for whom it was requested'
    end as detail
from approval_resolutions as answer
inner join audited
    on audited.tenant = answer.tenant and audited.trajectory_id = answer.trajectory_id
asof left join approval_requests as request
    on request.tenant = answer.tenant
        and request.trajectory_id = answer.trajectory_id
        and request.approval_id = answer.approval_id
        and request.sequence_number < answer.sequence_number
where in_scope(answer.tenant, answer.started_on)
    and coalesce(answer.decision, 'granted') = 'granted'
    and (
        coalesce(answer.approver = request.requester, true)
        or coalesce(answer.approver = audited.principal, false)
    )
