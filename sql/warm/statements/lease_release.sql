-- lease_release: let go; no row if the lease is lost.
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
update trajectory_leases
set
    revision = revision + 1,
    tenures = case
        when %(head)s::jsonb is null then tenures
        else jsonb_set(tenures, '{-1,released_head}', %(head)s::jsonb)
    end,
    expires_at = null,
    renewed_at = statement_timestamp()
where tenant = %(tenant)s
    and trajectory_id = %(trajectory_id)s
    and fencing_token = %(fencing_token)s
    and worker = %(worker)s
    and expires_at is not null
returning revision
