-- Q05: settled action executed twice under one key
-- proves: one idempotency key led to at most one execution; a recorded result given again (replayed) is none
-- clauses: SOC 2 CC7.2, CC8.1; EU AI Act 12(1)-(2)
-- severity: critical
-- grain: one row per key
-- applies: live
-- needs: -
-- inputs: intents, results, settlements
-- owner: pipelines
-- read and local actions may be done again by a roll-back, under the same key: they are not counted.
with executed as (
    select tenant, trajectory_id, action_id, attempt, sequence_number
    from results
    where in_scope(tenant, started_on) and status = 'ok'
    union all
    select tenant, trajectory_id, action_id, attempt, sequence_number
    from settlements
    where in_scope(tenant, started_on) and event_type = 'ToolSettled' and verdict = 'executed'
),
by_attempt as (
    select
        intent.tenant,
        intent.trajectory_id,
        intent.key,
        intent.action_id,
        intent.attempt,
        min(executed.sequence_number) as first_seq
    from intents as intent
    inner join executed
        on executed.tenant = intent.tenant
            and executed.trajectory_id = intent.trajectory_id
            and executed.action_id = intent.action_id
            and executed.attempt = intent.attempt
    where in_scope(intent.tenant, intent.started_on) and intent.is_outside and intent.key <> ''
    group by intent.tenant, intent.trajectory_id, intent.key, intent.action_id, intent.attempt
)
select
    tenant,
    trajectory_id,
    max(first_seq) as sequence_number,
    arg_max(action_id, first_seq) as action_id,
    key as object,
    array_agg(first_seq order by first_seq) as related,
    'executed ' || count(*) || ' times under one key' as detail
from by_attempt
group by tenant, trajectory_id, key
having count(*) > 1
