-- Q03: phantom effect: result without durable intent
-- proves: no tool ran before its intent was recorded: every result of an attempt follows a ToolIntent of its action
-- clauses: EU AI Act 12(1)-(2); SOC 2 CC7.2; ISO 42001 A.6.2.8
-- severity: high
-- grain: one row per ToolResult
-- applies: live
-- needs: -
-- inputs: results, intents
-- owner: pipelines
-- refused and replayed need no intent: nothing was dispatched. An ancestor's action (^1:57.0) has its intent there.
with first_intents as (
    select tenant, trajectory_id, action_id, min(sequence_number) as first_seq
    from intents
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id, action_id
)
select
    result.tenant,
    result.trajectory_id,
    result.sequence_number,
    result.action_id,
    null::varchar as object,
    case when intent.first_seq is null then []::bigint[] else [intent.first_seq] end as related,
    'result ' || coalesce(result.status, 'unknown')
    || case when intent.first_seq is null then ' without an intent' else ' before its intent' end as detail
from results as result
left join first_intents as intent
    on intent.tenant = result.tenant
        and intent.trajectory_id = result.trajectory_id
        and intent.action_id = result.action_id
where in_scope(result.tenant, result.started_on)
    and coalesce(result.status, 'unknown') not in ('refused', 'replayed')
    and not coalesce(starts_with(result.action_id, '^'), false)
    and coalesce(intent.first_seq > result.sequence_number, true)
