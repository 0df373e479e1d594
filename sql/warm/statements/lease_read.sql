-- lease_read: one lease record, and for how long it is held by this server's clock.
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
select
    tenant,
    trajectory_id,
    revision,
    tenures::text,
    coalesce(greatest(extract(epoch from expires_at - statement_timestamp()), 0), 0)::float8 as free_in_s,
    (extract(epoch from renewed_at) * 1000000)::bigint as renewed_at_us
from trajectory_leases
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
