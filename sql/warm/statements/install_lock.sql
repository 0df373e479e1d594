-- install_lock: one installer at a time in this schema.
-- grain: one row
-- inputs: none
-- owner: ingest
select pg_advisory_xact_lock(hashtext('trajlake ' || current_schema()))
