-- payload_faults: rows whose text is not what they committed to, or is gone without an erasure or expiry.
-- grain: one row per fault
-- inputs: events_part (a stretch of events), audited
-- built: from each stretch of the events, in scope, of every kind
select
    part.tenant,
    part.trajectory_id,
    part.started_on,
    part.sequence_number,
    case
        when part.payload is null then 'the payload is gone and no erasure accounts for it'
        when part.salt is null then 'the payload is present, its salt is not'
        else 'the payload commits to something else than the event says'
    end as fault
from events_part as part
inner join audited
    on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id
where in_scope(part.tenant, part.started_on)
    and case
        when part.payload is null or part.salt is null
            then not (part.payload is null and (audited.is_erased or audited.is_expired))
        else part.commitment is distinct from sha256(concat(part.salt, chr(10), part.payload))
    end
