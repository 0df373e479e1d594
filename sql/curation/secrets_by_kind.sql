-- secrets_by_kind: what has the secret scanner found?
-- grain: one row per tenant, kind and scanner version
-- inputs: secrets
-- owner: pipelines
-- range: day on which it was found (UTC)
-- columns:
--   tenant           tenant
--   kind             kind of credential
--   scanner_version  version of the rules
--   findings         different places and values
--   trajectories     trajectories with one
--   blobs            blobs with one
-- caveats: of what `trajlake scan` (or a cut) has read; the secret itself is in no ledger.
select
    tenant,
    kind,
    scanner_version,
    count(distinct offset_hash) as findings,
    count(distinct trajectory_id) as trajectories,
    count(distinct sha256) as blobs
from secrets
where ("at" at time zone 'UTC')::date >= coalesce(getvariable('report_from'), date '0001-01-01')
    and ("at" at time zone 'UTC')::date <= coalesce(getvariable('report_to'), date '9999-12-31')
group by tenant, kind, scanner_version
order by tenant, kind, scanner_version
