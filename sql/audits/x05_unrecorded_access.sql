-- X05: access to the audit tables without a record
-- proves: whoever read findings or took evidence out is recorded: each audit run and each evidence export names its actor
-- clauses: PCI DSS 10.2.1.3; SOC 2 CC6.1, CC7.2
-- severity: medium
-- grain: one row per audit run or export
-- applies: all
-- needs: access
-- inputs: audit_findings, exports
-- owner: pipelines
-- An audit run writes one row of control 'access' beside its findings; evidence writes one row of kind evidence.
with accesses as (
    select
        audit_run,
        min(tenant) as tenant,
        min("at") as accessed_at,
        bool_or(control = 'access') as is_recorded,
        max(case when control = 'access' then nullif(detail ->> '$.actor', '') end) as actor
    from audit_findings
    where (tenant = '*' or getvariable('audit_tenant') is null or tenant = getvariable('audit_tenant'))
        and cast("at" as date) between getvariable('audit_from') and getvariable('audit_to')
    group by audit_run
)
select
    tenant,
    null::varchar as trajectory_id,
    null::bigint as sequence_number,
    null::varchar as action_id,
    audit_run as object,
    []::bigint[] as related,
    case when is_recorded then 'an audit run names no actor' else 'findings of a run that recorded no access' end as detail
from accesses
where not is_recorded or actor is null
union all
select
    coalesce(detail ->> '$.tenant', '*') as tenant,
    detail ->> '$.trajectory_id' as trajectory_id,
    null as sequence_number,
    null as action_id,
    export_id as object,
    []::bigint[] as related,
    'evidence was taken out and no actor is named' as detail
from exports
where kind = 'evidence'
    and nullif(actor, '') is null
    and in_scope(coalesce(detail ->> '$.tenant', '*'), cast("at" as date))
