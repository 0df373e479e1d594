-- rows_of_trajectory: what canonical() needs of every row of a trajectory.
-- grain: one row per event and hash
-- inputs: trajectory_events
-- owner: ingest
select
    sequence_number,
    fencing_token,
    event_type,
    turn,
    (extract(epoch from recorded_at) * 1000000)::bigint,
    cryptographic_hash,
    case when event_type = any(%(types)s::text[]) then payload::text end
from trajectory_events
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
