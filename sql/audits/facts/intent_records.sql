-- intent_records: goals, constraints, obligations and plans as they were committed.
-- grain: one row per event of intent state
-- inputs: events_part (a stretch of events), audited
-- built: from each stretch of the events, in scope and live
with fields as (
    select
        part.tenant,
        part.trajectory_id,
        part.started_on,
        part.sequence_number,
        part.turn,
        part.fencing_token,
        part.recorded_at,
        part.event_type,
        part.schema_version,
        from_json(part.payload, '{"constraint_id":"VARCHAR","obligation_id":"VARCHAR","predicate":"JSON","plan":"JSON","replaces":"JSON"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type in (
        'GoalRevised', 'ConstraintAccepted', 'ConstraintWithdrawn', 'ObligationOpened', 'ObligationDischarged', 'PlanCommitted'
    )
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    event_type,
    coalesce(body.constraint_id, body.obligation_id) as subject,
    body.predicate as predicate,
    body.plan as plan,
    body.replaces as replaces
from fields
