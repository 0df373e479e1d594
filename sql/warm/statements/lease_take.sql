-- lease_take: a further tenure; its transaction holds the row (lease_lock).
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
update trajectory_leases
set
    revision = revision + 1,
    fencing_token = %(fencing_token)s,
    worker = %(worker)s,
    tenures = %(tenures)s::jsonb,
    expires_at = statement_timestamp() + make_interval(secs => %(duration_s)s),
    renewed_at = statement_timestamp()
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
returning revision
