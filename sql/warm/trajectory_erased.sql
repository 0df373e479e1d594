-- trajectory_erased: trajectories whose texts must not come back; every insert of events reads it under the head's lock.
-- grain: one row per erased trajectory
-- inputs: erase_trajectory
-- owner: ingest
create table if not exists trajectory_erased (
    tenant text not null,
    trajectory_id text not null,
    epoch bigint not null,
    erased_at timestamptz not null default now(),
    primary key (tenant, trajectory_id)
)
