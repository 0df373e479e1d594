-- span_close: the numbers of a token end where the next one begins.
-- grain: one row
-- inputs: trajectory_spans
-- owner: ingest
update trajectory_spans set stop = %(stop)s
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s and fencing_token = %(fencing_token)s
