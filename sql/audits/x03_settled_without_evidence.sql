-- X03: settled by a person without evidence
-- proves: a person who decided a doubtful effect said on what evidence
-- clauses: SOC 2 CC7.3; EU AI Act 12(1)-(2), 14
-- severity: medium
-- grain: one row per ToolSettled
-- applies: live
-- needs: -
-- inputs: settlements
-- owner: pipelines
select
    tenant,
    trajectory_id,
    sequence_number,
    action_id,
    actor as object,
    []::bigint[] as related,
    'settled as ' || coalesce(verdict, 'unknown') || ' by ' || coalesce(actor, 'an unknown person')
    || ', without evidence' as detail
from settlements
where in_scope(tenant, started_on)
    and event_type = 'ToolSettled'
    and coalesce(how, 'person') = 'person'
    and coalesce(trim(evidence ->> '$'), '') in ('', '{}', '[]')
