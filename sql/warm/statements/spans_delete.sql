-- spans_delete: the line of a trajectory is drawn anew.
-- grain: every span of one trajectory
-- inputs: trajectory_spans
-- owner: ingest
delete from trajectory_spans where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
