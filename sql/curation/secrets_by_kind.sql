-- secrets_by_kind: what the scanner has found, by kind and version. The secret itself is nowhere in a lake's ledgers.
-- grain: one row per tenant, kind and scanner version
-- inputs: secrets
-- owner: pipelines
select
    tenant,
    kind,
    scanner_version,
    count(distinct offset_hash) as findings,
    count(distinct trajectory_id) as trajectories,
    count(distinct sha256) as blobs
from secrets
group by tenant, kind, scanner_version
order by tenant, kind, scanner_version
