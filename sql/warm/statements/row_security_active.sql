-- row_security_active: whether this role sees some tenants' rows only (then COPY into the table is refused).
-- grain: one row
-- inputs: trajectory_events
-- owner: ingest
select row_security_active('trajectory_events')
