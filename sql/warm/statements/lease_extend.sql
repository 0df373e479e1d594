-- lease_extend: hold on for at least so long, never shorter than before; no row if the lease is lost.
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
update trajectory_leases
set
    revision = revision + 1,
    expires_at = greatest(expires_at, statement_timestamp() + make_interval(secs => %(duration_s)s)),
    renewed_at = statement_timestamp()
where tenant = %(tenant)s
    and trajectory_id = %(trajectory_id)s
    and fencing_token = %(fencing_token)s
    and worker = %(worker)s
    and expires_at is not null
returning revision, extract(epoch from expires_at - renewed_at)::float8
