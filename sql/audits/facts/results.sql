-- results: how an attempt ended.
-- grain: one row per ToolResult
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
        from_json(part.payload, '{"action_id":"VARCHAR","attempt":"BIGINT","status":"VARCHAR","cost":"JSON"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type = 'ToolResult'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    turn,
    fencing_token,
    body.action_id as action_id,
    coalesce(body.attempt, 1) as attempt,
    body.status as status,
    body.cost as cost
from fields
