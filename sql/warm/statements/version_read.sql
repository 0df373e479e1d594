-- version_read: version of the objects in this database's schema.
-- grain: one row
-- inputs: warm_version
-- owner: ingest
select max(version) from warm_version having count(*) > 0
