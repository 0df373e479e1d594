-- events: canonical history (schemas/history.py): what counts, up to the last gap-free number.
-- grain: one row per trajectory and sequence number
-- inputs: trajectory_events, trajectory_spans, trajectory_heads
-- owner: ingest
create or replace view events with (security_invoker = true) as
select
    entry.tenant,
    entry.trajectory_id,
    entry.sequence_number,
    entry.event_type,
    entry.schema_version,
    entry.fencing_token,
    entry.turn,
    entry.recorded_at,
    entry.payload,
    encode(entry.salt, 'hex') as salt,
    encode(entry.commitment, 'hex') as commitment,
    encode(entry.cryptographic_hash, 'hex') as cryptographic_hash,
    entry.writer,
    entry.lsn,
    entry.started_on,
    entry.model,
    entry.created_at,
    entry.frame
from trajectory_events as entry
join trajectory_spans as span
    on span.tenant = entry.tenant
    and span.trajectory_id = entry.trajectory_id
    and span.fencing_token = entry.fencing_token
join trajectory_heads as head
    on head.tenant = entry.tenant
    and head.trajectory_id = entry.trajectory_id
where entry.sequence_number >= span.start
    and (span.stop is null or entry.sequence_number < span.stop)
    and entry.sequence_number < head.next_sequence
    and (
        head.conflicts = 0
        or not exists (
            select from trajectory_events as other
            where other.tenant = entry.tenant
                and other.trajectory_id = entry.trajectory_id
                and other.sequence_number = entry.sequence_number
                and other.fencing_token = entry.fencing_token
                and other.cryptographic_hash < entry.cryptographic_hash
        )
    )
