-- Q11: stale fencing token
-- proves: nothing was dispatched or answered under a tenure that another had already replaced
-- clauses: SOC 2 CC7.2; EU AI Act 12(1)-(2)
-- severity: critical
-- grain: one row per ToolIntent or ToolResult
-- applies: live
-- needs: -
-- inputs: intents, results, tenures, quarantine, audited
-- owner: pipelines
-- canonical() moves what a stale writer wrote into quarantine: both places are read. The first of
-- them has the number of the opening that replaced its tenure. A missing token is a finding.
with acts as (
    select tenant, trajectory_id, started_on, sequence_number, fencing_token, action_id, 'intent' as act
    from intents
    where in_scope(tenant, started_on)
    union all
    select tenant, trajectory_id, started_on, sequence_number, fencing_token, action_id, 'result' as act
    from results
    where in_scope(tenant, started_on)
    union all
    select
        quarantine.tenant,
        quarantine.trajectory_id,
        audited.started_on,
        quarantine.sequence_number,
        quarantine.fencing_token,
        quarantine.payload ->> '$.action_id' as action_id,
        case quarantine.event_type when 'ToolIntent' then 'intent' else 'result' end as act
    from quarantine
    inner join audited
        on audited.tenant = quarantine.tenant
            and audited.trajectory_id = quarantine.trajectory_id
            and audited.is_live
    where in_scope(audited.tenant, audited.started_on)
        and quarantine.reason = 'superseded'
        and quarantine.event_type in ('ToolIntent', 'ToolResult')
)
select
    act.tenant,
    act.trajectory_id,
    act.sequence_number,
    act.action_id,
    null::varchar as object,
    coalesce(array_agg(tenure.sequence_number order by tenure.sequence_number)
        filter (tenure.token > act.fencing_token), []::bigint[]) as related,
    act.act || ' under token ' || coalesce(cast(act.fencing_token as varchar), 'unknown')
    || ', token ' || coalesce(cast(max(tenure.token) as varchar), 'unknown') || ' was in force' as detail
from acts as act
left join tenures as tenure
    on tenure.tenant = act.tenant
        and tenure.trajectory_id = act.trajectory_id
        and tenure.sequence_number <= act.sequence_number
where in_scope(act.tenant, act.started_on)
group by act.tenant, act.trajectory_id, act.sequence_number, act.fencing_token, act.action_id, act.act
having coalesce(act.fencing_token < max(tenure.token), true)
