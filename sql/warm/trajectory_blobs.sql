-- trajectory_blobs: bulk that events name, for those who replicate into this database.
-- grain: one row per tenant and content
-- inputs: the replica's put
-- owner: ingest
create table if not exists trajectory_blobs (
    tenant text not null,
    sha256 bytea not null,
    data bytea not null,
    put_at timestamptz not null default now(),
    primary key (tenant, sha256)
)
