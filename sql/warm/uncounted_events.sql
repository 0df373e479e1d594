-- uncounted_events: rows of trajectory_events that do not count: superseded, held back or in conflict.
-- grain: one row per event and hash that the view events leaves out
-- inputs: trajectory_events, trajectory_spans, trajectory_heads
-- owner: ingest
create or replace view uncounted_events with (security_invoker = true) as
select
    entry.tenant,
    entry.trajectory_id,
    entry.sequence_number,
    entry.fencing_token,
    entry.event_type,
    entry.recorded_at,
    encode(entry.cryptographic_hash, 'hex') as cryptographic_hash,
    entry.writer,
    entry.lsn
from trajectory_heads as head
join trajectory_events as entry
    on entry.tenant = head.tenant
    and entry.trajectory_id = head.trajectory_id
left join trajectory_spans as span
    on span.tenant = entry.tenant
    and span.trajectory_id = entry.trajectory_id
    and span.fencing_token = entry.fencing_token
where head.superseded + head.held_back + head.conflicts > 0
    and (
        span.fencing_token is null
        or entry.sequence_number < span.start
        or entry.sequence_number >= span.stop
        or entry.sequence_number >= head.next_sequence
        or exists (
            select from trajectory_events as other
            where other.tenant = entry.tenant
                and other.trajectory_id = entry.trajectory_id
                and other.sequence_number = entry.sequence_number
                and other.fencing_token = entry.fencing_token
                and other.cryptographic_hash < entry.cryptographic_hash
        )
    )
