-- resumes: seams: where a new worker went on.
-- grain: one row per Resumed
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
        from_json(part.payload, '{"schema_version":"BIGINT","log_complete":"BOOLEAN","accept_loss":"BOOLEAN","because":"VARCHAR"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type = 'Resumed'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    coalesce(body.schema_version, 1) as resumed_version,
    coalesce(body.log_complete, body is not null) as is_complete,
    coalesce(body.accept_loss, body is null) as is_loss_accepted,
    coalesce(body.because, '') as because
from fields
