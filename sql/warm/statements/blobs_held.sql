-- blobs_held: which of the blobs named are held; they stay until the transaction ends.
-- grain: one row per blob
-- inputs: trajectory_blobs
-- owner: ingest
select held.tenant, held.sha256
from unnest(%(tenants)s::text[], %(sha256s)s::bytea[]) as named (tenant, sha256)
join trajectory_blobs as held on held.tenant = named.tenant and held.sha256 = named.sha256
order by held.tenant, held.sha256
for key share of held
