-- budget_grants: limits as given at the start and as revised.
-- grain: one row per TaskStarted or BudgetRevised that names a limit
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
        from_json(part.payload, '{"budget":"JSON","limits":"JSON"}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type in ('TaskStarted', 'BudgetRevised')
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    coalesce(body.limits, body.budget) as limits
from fields
where coalesce(body.limits, body.budget) is not null
