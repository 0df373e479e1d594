-- frames_read: every frame of one trajectory, whether it counts or not; erased ones have none.
-- grain: one row per event and hash
-- inputs: trajectory_events
-- owner: ingest
select frame, model, started_on
from trajectory_events
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s and frame is not null
order by sequence_number, fencing_token, cryptographic_hash
