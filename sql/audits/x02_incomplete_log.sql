-- X02: resume on an incomplete log, or with a loss accepted
-- proves: every resume had the whole log, or the loss is known by name
-- clauses: EU AI Act 12(1)-(2); SOC 2 CC7.3
-- severity: high
-- grain: one row per Resumed
-- applies: live
-- needs: -
-- inputs: resumes
-- owner: pipelines
select
    tenant,
    trajectory_id,
    sequence_number,
    null::varchar as action_id,
    null::varchar as object,
    []::bigint[] as related,
    case when is_complete then 'the log was complete' else 'the log was not complete' end
    || case when is_loss_accepted then ', a loss was accepted' else '' end
    || case when because = '' then ', no reason given' else ': ' || because end as detail
from resumes
where in_scope(tenant, started_on) and (not is_complete or is_loss_accepted)
