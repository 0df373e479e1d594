-- standing: what of intent state was in force when. void_at is the roll-back that gave the record up (null: none).
-- grain: one row per event of intent state
-- inputs: intent_records, roll_backs
-- built: once, after all stretches
select
    record.tenant,
    record.trajectory_id,
    record.started_on,
    record.sequence_number,
    record.event_type,
    record.subject,
    record.predicate,
    record.plan,
    record.replaces,
    min(rolled.sequence_number) as void_at
from intent_records as record
left join roll_backs as rolled
    on rolled.tenant = record.tenant
        and rolled.trajectory_id = record.trajectory_id
        and record.sequence_number > rolled.last_kept
        and record.sequence_number <= rolled.last_lost
where in_scope(record.tenant, record.started_on)
group by all
