-- payload_missing: rows without text (or salt) that no erasure and no retention accounts for.
-- grain: one row per violation: tenant, trajectory_id, sequence_number, detail
-- inputs: events, erasures, trajectories
-- owner: pipelines
with subjects as (
    select
        tenant,
        trajectory_id,
        status,
        unnest(coalesce(from_json(subjects, '["varchar"]'), ['']::varchar[])) as subject
    from trajectories
),
erased as (
    select distinct subjects.tenant, subjects.trajectory_id
    from subjects
    inner join erasures
        on erasures.tenant = subjects.tenant
            and erasures.state <> 'refused'
            and (erasures.trajectory_id = subjects.trajectory_id or erasures.subject = subjects.subject)
    union
    select distinct erasures.tenant, erasures.trajectory_id
    from erasures
    where erasures.trajectory_id is not null and erasures.state <> 'refused'
),
expired as (
    select tenant, trajectory_id
    from trajectories
    where status = 'expired' or payloads_expired > 0
)
select
    events.tenant,
    events.trajectory_id,
    events.sequence_number,
    case when events.payload is null then 'payload' else 'salt' end || ' is null, and no ledger row says why' as detail
from events
anti join erased using (tenant, trajectory_id)
anti join expired using (tenant, trajectory_id)
where events.payload is null or events.salt is null
