-- status: the fleet: owner, lease, age, open intents, doubts, approvals, mail.
-- grain: one row per trajectory that has an event or a lease record here
-- inputs: trajectory_heads, trajectory_leases, trajectory_open_items, trajectory_mail, doubts
-- owner: ingest
create or replace view status with (security_invoker = true) as
select
    head.tenant,
    head.trajectory_id,
    case
        when head.ended is not null then head.ended
        when lease.expires_at > now() then 'running'
        when exists (
            select from trajectory_open_items as item
            where item.tenant = head.tenant and item.trajectory_id = head.trajectory_id and item.kind = 'approval'
        ) then 'parked'
        when exists (
            select from doubts as doubt
            where doubt.tenant = head.tenant and doubt.trajectory_id = head.trajectory_id
        ) then 'parked'
        when exists (
            select from trajectory_open_items as item
            where item.tenant = head.tenant and item.trajectory_id = head.trajectory_id and item.asynchronous
        ) then 'waiting'
        else 'open'
    end as status,
    head.kind,
    case when lease.expires_at > now() then lease.worker else '' end as owner,
    greatest(extract(epoch from lease.expires_at - now()), 0)::float8 as lease_s,
    extract(epoch from now() - head.recorded_at)::float8 as age_s,
    head.turn,
    head.next_sequence as events,
    (
        select count(*) from trajectory_open_items as item
        where item.tenant = head.tenant and item.trajectory_id = head.trajectory_id and item.kind = 'intent'
    ) as open_intents,
    (
        select count(*) from doubts as doubt
        where doubt.tenant = head.tenant and doubt.trajectory_id = head.trajectory_id
    ) as doubts,
    (
        select count(*) from trajectory_open_items as item
        where item.tenant = head.tenant and item.trajectory_id = head.trajectory_id and item.kind = 'approval'
    ) as approvals,
    (
        select count(*) from trajectory_mail as mail
        where mail.tenant = head.tenant and mail.trajectory_id = head.trajectory_id
    ) as mail,
    head.superseded,
    head.held_back,
    head.conflicts,
    head.recorded_at as last_recorded_at
from trajectory_heads as head
left join trajectory_leases as lease
    on lease.tenant = head.tenant
    and lease.trajectory_id = head.trajectory_id
