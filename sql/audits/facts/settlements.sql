-- settlements: what decided an effect in doubt, and late results.
-- grain: one row per ToolSettled or LateResult
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
        from_json(part.payload, '{"action_id":"VARCHAR","attempt":"BIGINT","how":"VARCHAR","verdict":"VARCHAR","evidence":"JSON","decision":"VARCHAR","mail":{"actor":"VARCHAR"}}') as body
    from events_part as part
    inner join audited
        on audited.tenant = part.tenant and audited.trajectory_id = part.trajectory_id and audited.is_live
    where in_scope(part.tenant, part.started_on) and part.event_type in ('ToolSettled', 'LateResult')
)
select
    tenant,
    trajectory_id,
    started_on,
    sequence_number,
    turn,
    fencing_token,
    event_type,
    body.action_id as action_id,
    coalesce(body.attempt, 1) as attempt,
    body.how as how,
    body.verdict as verdict,
    body.evidence as evidence,
    body.decision as decision,
    body.mail.actor as actor
from fields
