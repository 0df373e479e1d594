-- Q02: arguments changed after authorization
-- proves: what was dispatched is what was allowed: an earlier allow of the action carries the same arguments hash
-- clauses: SOC 2 CC6.1, CC8.1; ISO 42001 A.6.2.8
-- severity: high
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, authorizations
-- owner: pipelines
with allowed as (
    select
        intent.tenant,
        intent.trajectory_id,
        intent.sequence_number,
        intent.action_id,
        intent.tool,
        array_agg(decision.sequence_number order by decision.sequence_number) as decisions,
        coalesce(bool_or(decision.arguments_hash = intent.arguments_hash), false) as is_same
    from intents as intent
    inner join authorizations as decision
        on decision.tenant = intent.tenant
            and decision.trajectory_id = intent.trajectory_id
            and decision.action_id = intent.action_id
            and decision.sequence_number < intent.sequence_number
            and decision.decision = 'allow'
    where in_scope(intent.tenant, intent.started_on)
    group by intent.tenant, intent.trajectory_id, intent.sequence_number, intent.action_id, intent.tool
)
select
    tenant,
    trajectory_id,
    sequence_number,
    action_id,
    null::varchar as object,
    decisions as related,
    coalesce(tool, 'an unknown tool') || ' was dispatched with other arguments than any allow before it names' as detail
from allowed
where not is_same
