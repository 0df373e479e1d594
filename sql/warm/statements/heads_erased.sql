-- heads_erased: which of a batch's trajectories are erased; asked after their heads are held.
-- grain: one row per erased trajectory
-- inputs: trajectory_erased
-- owner: ingest
select gone.tenant, gone.trajectory_id
from unnest(%(tenants)s::text[], %(trajectory_ids)s::text[]) as named (tenant, trajectory_id)
join trajectory_erased as gone
    on gone.tenant = named.tenant
    and gone.trajectory_id = named.trajectory_id
