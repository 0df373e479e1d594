-- warm_version: version of these objects; a newer one is refused.
-- grain: one row per version that was installed; the highest is in force
-- inputs: the installer
-- owner: ingest
create table if not exists warm_version (version integer not null primary key)
