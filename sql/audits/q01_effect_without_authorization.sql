-- Q01: external effect without prior authorization
-- proves: every effect on the outside world was allowed, by the latest decision on that action, before its intent
-- clauses: SOC 2 CC6.1, CC8.1; EU AI Act 12(1)-(2); ISO 42001 A.6.2.8
-- severity: high
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, authorizations
-- owner: pipelines
select
    intent.tenant,
    intent.trajectory_id,
    intent.sequence_number,
    intent.action_id,
    null::varchar as object,
    case when decision.sequence_number is null then []::bigint[] else [decision.sequence_number] end as related,
    'effect ' || coalesce(intent.effect, 'unknown') || ' of ' || coalesce(intent.tool, 'an unknown tool')
    || ', decision before it: ' || coalesce(decision.decision, 'none') as detail
from intents as intent
asof left join authorizations as decision
    on decision.tenant = intent.tenant
        and decision.trajectory_id = intent.trajectory_id
        and decision.action_id = intent.action_id
        and decision.sequence_number < intent.sequence_number
where in_scope(intent.tenant, intent.started_on)
    and intent.is_outside
    and decision.decision is distinct from 'allow'
