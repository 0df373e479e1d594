-- versions: schema versions that a later resume goes on from.
-- grain: one row per TaskStarted, CheckpointSaved or Resumed
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
        from_json(part.payload, '{"schema_version":"BIGINT"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type in ('TaskStarted', 'CheckpointSaved', 'Resumed')
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    event_type,
    case when event_type = 'Resumed' then coalesce(body.schema_version, 1) else schema_version end as version
from fields
