-- compactions: summaries that took the place of earlier items.
-- grain: one row per Compacted
-- inputs: events_part (a stretch of events), audited
-- built: from each stretch of the events, in scope and readable
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
        from_json(part.payload, '{"reply":"BIGINT","keep":"BIGINT","turns":["BIGINT"]}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_readable
    where in_scope(part.tenant, part.started_on) and part.event_type = 'Compacted'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    body.reply as reply,
    coalesce(body.keep, 0) as keep,
    body.turns[1] as first_turn,
    body.turns[2] as last_turn
from fields
