-- status: the fleet: owner, lease, age, open intents, doubts, approvals, mail.
-- grain: one row per trajectory that has an event here
-- inputs: trajectory_heads, trajectory_leases, trajectory_open_items, trajectory_mail, is_in_doubt
-- owner: ingest
-- notes: counted per row, so that a page of it costs a page; order by last_recorded_at desc nulls last is an index.
create or replace view status with (security_invoker = true) as
select
    head.tenant,
    head.trajectory_id,
    case
        when head.ended is not null then head.ended
        when lease.expires_at > now() then 'running'
        when item.approvals + item.doubts > 0 then 'parked'
        when item.jobs > 0 then 'waiting'
        else 'open'
    end as status,
    head.kind,
    case when lease.expires_at > now() then lease.worker else '' end as owner,
    greatest(extract(epoch from lease.expires_at - now()), 0)::float8 as lease_s,
    extract(epoch from now() - head.recorded_at)::float8 as age_s,
    head.turn,
    head.next_sequence as events,
    item.intents as open_intents,
    item.doubts,
    item.approvals,
    mail.items as mail,
    head.superseded,
    head.held_back,
    head.conflicts,
    head.recorded_at as last_recorded_at
from trajectory_heads as head
left join trajectory_leases as lease
    on lease.tenant = head.tenant
    and lease.trajectory_id = head.trajectory_id
cross join lateral (
    select
        count(*) filter (where trajectory_open_items.kind = 'intent') as intents,
        count(*) filter (where trajectory_open_items.kind = 'approval') as approvals,
        count(*) filter (where asynchronous) as jobs,
        count(*) filter (
            where trajectory_open_items.kind = 'intent' and head.kind = 'live'
                and is_in_doubt(
                    until, asynchronous, trajectory_open_items.fencing_token, head.fencing_token, head.released,
                    lease.fencing_token, lease.expires_at
                )
        ) as doubts
    from trajectory_open_items
    where tenant = head.tenant and trajectory_id = head.trajectory_id
) as item
cross join lateral (
    select count(*) as items from trajectory_mail where tenant = head.tenant and trajectory_id = head.trajectory_id
) as mail
