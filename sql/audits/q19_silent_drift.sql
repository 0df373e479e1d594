-- Q19: drift without event
-- proves: model, tools and policy never changed between two decisions without a DriftDetected between them
-- clauses: SOC 2 CC8.1; EU AI Act 12(1)-(2), 26; ISO 42001 A.6.2.8
-- severity: medium
-- grain: one row per ModelReplied or Authorized
-- applies: live
-- needs: -
-- inputs: model_calls, contexts, authorizations, drifts, audited
-- owner: pipelines
-- Replies are compared with the one before for the same purpose. A kept reply that names no model is a finding.
-- Attempts that ended in an error name none and are left out.
with replies as (
    select
        reply.tenant,
        reply.trajectory_id,
        audited.started_on,
        reply.sequence_number,
        coalesce(reply.purpose, 'act') as purpose,
        nullif(reply.served_model, '') as served_model,
        context.tools_hash
    from model_calls as reply
    inner join audited
        on audited.tenant = reply.tenant and audited.trajectory_id = reply.trajectory_id and audited.is_live
    left join contexts as context
        on context.tenant = reply.tenant
            and context.trajectory_id = reply.trajectory_id
            and context.sequence_number = reply.context_seq
    where in_scope(reply.tenant, reply.started_on) and coalesce(reply.status, 'kept') <> 'error'
),
observed as (
    select tenant, trajectory_id, started_on, sequence_number, 'model of ' || purpose as component, served_model as value
    from replies
    union all
    select tenant, trajectory_id, started_on, sequence_number, 'tools of ' || purpose as component, tools_hash as value
    from replies
    where tools_hash is not null
    union all
    select tenant, trajectory_id, started_on, sequence_number, 'policy' as component, policy_version as value
    from authorizations
    where in_scope(tenant, started_on)
),
compared as (
    select
        observed.*,
        lag(value) over steps as earlier_value,
        lag(sequence_number) over steps as earlier_seq
    from observed
    window steps as (partition by tenant, trajectory_id, component order by sequence_number)
),
changed as (
    select *
    from compared
    where value is null or (earlier_seq is not null and value is distinct from earlier_value)
)
select
    changed.tenant,
    changed.trajectory_id,
    changed.sequence_number,
    null::varchar as action_id,
    changed.component as object,
    case when changed.earlier_seq is null then []::bigint[] else [changed.earlier_seq] end as related,
    changed.component || ': ' || coalesce(changed.earlier_value, 'none') || ' became '
    || coalesce(changed.value, 'none (not recorded)') as detail
from changed
asof left join drifts as drift
    on drift.tenant = changed.tenant
        and drift.trajectory_id = changed.trajectory_id
        and drift.sequence_number < changed.sequence_number
where in_scope(changed.tenant, changed.started_on)
    and (changed.value is null or coalesce(drift.sequence_number < changed.earlier_seq, true))
