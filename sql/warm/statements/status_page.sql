-- status_page: the trajectories that moved last.
-- grain: one row per trajectory
-- inputs: status
-- owner: ingest
select
    tenant, trajectory_id, status, kind, owner, round(lease_s::numeric, 1)::float8 as lease_s,
    round(age_s::numeric, 1)::float8 as age_s, turn, events, open_intents, doubts, approvals, mail, superseded, held_back,
    conflicts
from status
where (%(tenant)s::text is null or tenant = %(tenant)s)
    and (not %(open_only)s or status in ('running', 'parked', 'waiting', 'open'))
order by last_recorded_at desc nulls last
limit %(row_limit)s
