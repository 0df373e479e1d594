-- hidden_secrets: every finding of the scanner, at the event that holds it (a blob is found at each event that names it).
-- grain: one row per finding and event
-- inputs: secrets, blob_refs, events, audited
-- built: once, after all stretches
with at_events as (
    select distinct tenant, trajectory_id, sequence_number, kind, null::varchar as sha256
    from secrets
    where trajectory_id is not null and sequence_number is not null
    union
    select distinct refs.tenant, refs.trajectory_id, refs.sequence_number, secrets.kind, secrets.sha256
    from secrets
    inner join blob_refs as refs
        on refs.tenant = secrets.tenant and refs.sha256 = secrets.sha256
)
select
    found.tenant,
    found.trajectory_id,
    audited.started_on,
    found.sequence_number,
    found.kind,
    found.sha256,
    event.event_type,
    event.turn,
    event.payload is not null as is_present
from at_events as found
inner join audited
    on audited.tenant = found.tenant and audited.trajectory_id = found.trajectory_id
inner join events as event
    on event.tenant = found.tenant
        and event.trajectory_id = found.trajectory_id
        and event.sequence_number = found.sequence_number
        and in_scope(event.tenant, event.started_on)
where in_scope(audited.tenant, audited.started_on)
