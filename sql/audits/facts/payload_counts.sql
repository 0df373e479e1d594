-- payload_counts: how many payloads of a trajectory are there and how many are gone.
-- grain: one row per trajectory and stretch of events; readers add them up
-- inputs: events_part (a stretch of events), audited
-- built: from each stretch of the events, in scope, of every kind
select
    part.tenant,
    part.trajectory_id,
    audited.started_on,
    count(part.payload) as present,
    count(*) - count(part.payload) as absent,
    max(part.sequence_number) as last_event,
    max(part.recorded_at) as last_event_at
from events_part as part
inner join audited
    on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id
where in_scope(part.tenant, part.started_on)
group by part.tenant, part.trajectory_id, audited.started_on
