-- trajectory_blob_refs: which trajectory names which blob, so that an erasure finds those nobody else names.
-- grain: one row per blob and trajectory
-- inputs: written in the transaction that inserts the events
-- owner: ingest
create table if not exists trajectory_blob_refs (
    tenant text not null,
    sha256 bytea not null,
    trajectory_id text not null,
    primary key (tenant, sha256, trajectory_id)
)
