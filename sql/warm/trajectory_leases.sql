-- trajectory_leases: who may act for a trajectory; tenures is the list that runtime/leases/lease.py describes.
-- grain: one row per trajectory
-- inputs: the lease store
-- owner: ingest
-- notes: expires_at is null when nobody holds it; all times are by this server's clock.
create table if not exists trajectory_leases (
    tenant text not null,
    trajectory_id text not null,
    revision bigint not null,
    fencing_token bigint not null,
    worker text not null,
    tenures jsonb not null,
    expires_at timestamptz,
    renewed_at timestamptz not null,
    primary key (tenant, trajectory_id)
)
