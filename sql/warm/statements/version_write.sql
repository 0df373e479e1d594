-- version_write: the objects are of this version now.
-- grain: one row
-- inputs: warm_version
-- owner: ingest
insert into warm_version (version) values (%(version)s) on conflict do nothing
