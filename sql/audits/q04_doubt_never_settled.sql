-- Q04: in-doubt intent never settled
-- proves: no effect stays in doubt beyond the agreed time: a result or a settlement follows every intent
-- clauses: EU AI Act 12(1)-(2); SOC 2 CC7.3
-- severity: high
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, results, settlements
-- owner: pipelines
-- parameters: audit_now, audit_sla_minutes. A job handed over asynchronously is waited for until its deadline.
with outcomes as (
    select tenant, trajectory_id, action_id, sequence_number
    from results
    where in_scope(tenant, started_on)
    union all
    select tenant, trajectory_id, action_id, sequence_number
    from settlements
    where in_scope(tenant, started_on)
),
last_outcomes as (
    select tenant, trajectory_id, action_id, max(sequence_number) as last_seq
    from outcomes
    group by tenant, trajectory_id, action_id
)
select
    intent.tenant,
    intent.trajectory_id,
    intent.sequence_number,
    intent.action_id,
    null::varchar as object,
    []::bigint[] as related,
    coalesce(intent.tool, 'an unknown tool') || ' (' || coalesce(intent.effect, 'unknown effect')
    || ') has had no result and no settlement since ' || coalesce(cast(intent.recorded_at as varchar), 'an unknown time')
        as detail
from intents as intent
left join last_outcomes as outcome
    on outcome.tenant = intent.tenant
        and outcome.trajectory_id = intent.trajectory_id
        and outcome.action_id = intent.action_id
where in_scope(intent.tenant, intent.started_on)
    and intent.is_outside
    and coalesce(
        intent.recorded_at <= getvariable('audit_now') - to_minutes(getvariable('audit_sla_minutes')), true
    )
    and not (intent.is_asynchronous and coalesce(intent.deadline_at > getvariable('audit_now'), false))
    and coalesce(outcome.last_seq < intent.sequence_number, true)
