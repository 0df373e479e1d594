-- lease_create: the first tenure of a trajectory; no row if a record is there.
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
insert into trajectory_leases
    (tenant, trajectory_id, revision, fencing_token, worker, tenures, expires_at, renewed_at)
values (
    %(tenant)s, %(trajectory_id)s, 1, %(fencing_token)s, %(worker)s, %(tenures)s::jsonb,
    statement_timestamp() + make_interval(secs => %(duration_s)s), statement_timestamp()
)
on conflict do nothing
returning revision
