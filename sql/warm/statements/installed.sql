-- installed: whether the objects are there.
-- grain: one row
-- inputs: warm_version
-- owner: ingest
select to_regclass('warm_version') is not null
