-- approval_requests: questions to a person.
-- grain: one row per ApprovalRequested
-- inputs: events_part (a stretch of events), audited
-- built: from each stretch of the events, in scope and live
with fields as (
    select
        part.tenant,
        part.trajectory_id,
        part.started_on,
        part.sequence_number,
        part.turn,
        part.fencing_token,
        part.recorded_at,
        part.event_type,
        part.schema_version,
        from_json(part.payload, '{"approval_id":"VARCHAR","action_id":"VARCHAR","arguments_hash":"VARCHAR","requester":"VARCHAR","expires_at":"BIGINT","single_use":"BOOLEAN","repeats":"VARCHAR"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type = 'ApprovalRequested'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    body.approval_id as approval_id,
    body.action_id as action_id,
    body.arguments_hash as arguments_hash,
    nullif(body.requester, '') as requester,
    make_timestamptz(body.expires_at) as expires_at,
    coalesce(body.single_use, true) as is_single_use,
    nullif(body.repeats, '') as repeats
from fields
