-- doubts: effects with an intent and no outcome for which nobody waits any more.
-- grain: one row per action in doubt
-- inputs: trajectory_open_items, trajectory_heads, trajectory_leases, is_in_doubt
-- owner: ingest
create or replace view doubts with (security_invoker = true) as
select
    item.tenant,
    item.trajectory_id,
    item.action_id,
    item.tool,
    item.effect,
    item.attempt,
    item.sequence_number as intent_sequence,
    item.recorded_at as intent_at,
    item.until,
    lease.worker
from trajectory_open_items as item
join trajectory_heads as head
    on head.tenant = item.tenant
    and head.trajectory_id = item.trajectory_id
left join trajectory_leases as lease
    on lease.tenant = item.tenant
    and lease.trajectory_id = item.trajectory_id
where item.kind = 'intent'
    and head.kind = 'live'
    and is_in_doubt(
        item.until, item.asynchronous, item.fencing_token, head.fencing_token, head.released, lease.fencing_token,
        lease.expires_at
    )
