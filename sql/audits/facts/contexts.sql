-- contexts: what the model was shown: which items stayed and which were new.
-- grain: one row per ContextBuilt
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
        from_json(part.payload, '{"purpose":"VARCHAR","base":"JSON","keep":"BIGINT","append":["JSON"],"head":{"tools":"VARCHAR","system":"VARCHAR"}}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_readable
    where in_scope(part.tenant, part.started_on) and part.event_type = 'ContextBuilt'
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    coalesce(body.purpose, 'act') as purpose,
    body.base as base,
    coalesce(body.keep, 0) as keep,
    coalesce(body.append, []) as append,
    coalesce(body.head.tools, '') as tools_hash
from fields
