-- open_trajectories: the live trajectories of a tenant whose canonical history has no end.
-- grain: one row per trajectory
-- inputs: trajectory_heads
-- owner: ingest
select trajectory_id
from trajectory_heads
where tenant = %(tenant)s and kind = 'live' and ended is null
order by trajectory_id
