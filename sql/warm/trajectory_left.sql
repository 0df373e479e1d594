-- trajectory_left: trajectories whose rows retention took out of the warm tier because the lake holds them all.
-- grain: one row per trajectory
-- inputs: leave_to_lake
-- owner: ingest
-- notes: their heads stay; what comes late for them is stored, moves no head, and goes with the next retention.
create table if not exists trajectory_left (
    tenant text not null,
    trajectory_id text not null,
    snapshot bigint not null,
    left_at timestamptz not null default now(),
    primary key (tenant, trajectory_id)
)
