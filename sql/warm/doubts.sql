-- doubts: effects with an intent and no outcome for which nobody waits any more.
-- grain: one row per action in doubt
-- inputs: trajectory_open_items, trajectory_heads, trajectory_leases
-- owner: ingest
-- notes: where leases are not kept in this database, a tenure counts as alive until it is closed or its call's time is up.
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
    and (
        coalesce(item.until < now(), false)
        or (
            not item.asynchronous
            and (
                head.fencing_token > item.fencing_token
                or head.released
                or lease.fencing_token > item.fencing_token
                or (lease.tenant is not null and coalesce(lease.expires_at <= now(), true))
            )
        )
    )
