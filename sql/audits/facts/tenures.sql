-- tenures: openings: the tokens under which a trajectory was written.
-- grain: one row per TaskStarted or LeaseAcquired
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
        from_json(part.payload, '{"token":"BIGINT"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type in ('TaskStarted', 'LeaseAcquired')
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    coalesce(fencing_token, body.token) as token
from fields
