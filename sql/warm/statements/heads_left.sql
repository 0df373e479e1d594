-- heads_left: which of a batch's trajectories retention took out; asked after their heads are held.
-- grain: one row per trajectory that left
-- inputs: trajectory_left
-- owner: ingest
select gone.tenant, gone.trajectory_id
from unnest(%(tenants)s::text[], %(trajectory_ids)s::text[]) as named (tenant, trajectory_id)
join trajectory_left as gone
    on gone.tenant = named.tenant
    and gone.trajectory_id = named.trajectory_id
