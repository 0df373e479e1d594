-- Q10: dispatch on a denied, pending or unknown approval
-- proves: an approval that an action names was granted, as the last answer before the dispatch
-- clauses: SOC 2 CC6.1, CC8.1; EU AI Act 12(1)-(2)
-- severity: high
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, approval_resolutions
-- owner: pipelines
select
    intent.tenant,
    intent.trajectory_id,
    intent.sequence_number,
    intent.action_id,
    intent.approval as object,
    case when answer.sequence_number is null then []::bigint[] else [answer.sequence_number] end as related,
    'the last answer before the dispatch: ' || coalesce(answer.decision, 'none (pending or unknown)') as detail
from intents as intent
asof left join approval_resolutions as answer
    on answer.tenant = intent.tenant
        and answer.trajectory_id = intent.trajectory_id
        and answer.approval_id = intent.approval
        and answer.sequence_number < intent.sequence_number
where in_scope(intent.tenant, intent.started_on)
    and intent.approval is not null
    and answer.decision is distinct from 'granted'
