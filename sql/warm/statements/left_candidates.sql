-- left_candidates: ended trajectories older than a moment that still have rows here, and where these come from.
-- grain: one row per trajectory and journal
-- inputs: trajectory_heads, trajectory_events, trajectory_open_items
-- notes: what still has an open intent or question stays where people look for it.
-- owner: ingest
select head.tenant, head.trajectory_id, head.next_sequence - 1, event.writer, max(event.lsn)
from trajectory_heads as head
join trajectory_events as event
    on event.tenant = head.tenant
    and event.trajectory_id = head.trajectory_id
where head.ended is not null
    and head.recorded_at < to_timestamp(%(before_s)s)
    and not exists (
        select from trajectory_open_items as item
        where item.tenant = head.tenant and item.trajectory_id = head.trajectory_id
    )
group by head.tenant, head.trajectory_id, head.next_sequence, event.writer
