-- X01: effect in a superseded or conflicting event
-- proves: no effect stands in events that do not count: a superseded external intent was still sent and must be settled
-- clauses: EU AI Act 12(1)-(2); SOC 2 CC7.2
-- severity: critical
-- grain: one row per ToolIntent in quarantine
-- applies: live
-- needs: -
-- inputs: quarantine, audited
-- owner: pipelines
select
    quarantine.tenant,
    quarantine.trajectory_id,
    quarantine.sequence_number,
    quarantine.payload ->> '$.action_id' as action_id,
    quarantine.cryptographic_hash as object,
    []::bigint[] as related,
    'effect ' || coalesce(quarantine.payload ->> '$.effect', 'unknown')
    || ' of ' || coalesce(quarantine.payload ->> '$.tool', 'an unknown tool')
    || ', ' || quarantine.reason || ', token ' || coalesce(cast(quarantine.fencing_token as varchar), 'unknown') as detail
from quarantine
inner join audited
    on audited.tenant = quarantine.tenant and audited.trajectory_id = quarantine.trajectory_id and audited.is_live
where in_scope(audited.tenant, audited.started_on)
    and quarantine.reason in ('superseded', 'conflict')
    and coalesce(quarantine.event_type, 'ToolIntent') = 'ToolIntent'
    and coalesce(quarantine.payload ->> '$.effect', 'external') not in ('read', 'local')
