-- lease_released_by: whether this very release has happened already (its answer was lost on the way).
-- grain: one row
-- inputs: trajectory_leases
-- owner: ingest
select 1
from trajectory_leases
where tenant = %(tenant)s
    and trajectory_id = %(trajectory_id)s
    and fencing_token = %(fencing_token)s
    and worker = %(worker)s
    and expires_at is null
    and revision = %(revision)s
