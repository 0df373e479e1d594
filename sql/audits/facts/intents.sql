-- intents: what was dispatched: each attempt, before it left the host.
-- grain: one row per ToolIntent
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
        from_json(part.payload, '{"action_id":"VARCHAR","tool":"VARCHAR","step":"VARCHAR","effect":"VARCHAR","arguments_hash":"VARCHAR","key":"VARCHAR","attempt":"BIGINT","approval":"VARCHAR","goal":"JSON","arguments":"JSON","asynchronous":"BOOLEAN","deadline_at":"BIGINT","reserved":"JSON"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type = 'ToolIntent'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    turn,
    fencing_token,
    recorded_at,
    body.action_id as action_id,
    body.tool as tool,
    body.step as step,
    body.effect as effect,
    coalesce(body.effect, 'external') not in ('read', 'local') as is_outside,
    body.arguments_hash as arguments_hash,
    body.key as key,
    coalesce(body.attempt, 1) as attempt,
    nullif(body.approval, '') as approval,
    body.goal as goal,
    body.arguments as arguments,
    coalesce(body.asynchronous, false) as is_asynchronous,
    make_timestamptz(body.deadline_at) as deadline_at,
    body.reserved as reserved
from fields
