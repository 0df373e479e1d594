-- tokens_of_trajectory: every opening event of a trajectory.
-- grain: one row per opening event and hash
-- inputs: trajectory_tokens
-- owner: ingest
select fencing_token, start, cryptographic_hash, after_token, after_sequence, after_hash
from trajectory_tokens
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
