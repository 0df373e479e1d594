-- span_open: a token joins the line.
-- grain: one row
-- inputs: trajectory_spans
-- owner: ingest
insert into trajectory_spans (tenant, trajectory_id, fencing_token, start, stop)
values (%(tenant)s, %(trajectory_id)s, %(fencing_token)s, %(start)s, %(stop)s)
on conflict (tenant, trajectory_id, fencing_token) do update set start = excluded.start, stop = excluded.stop
