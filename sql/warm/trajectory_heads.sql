-- trajectory_heads: where the canonical history of a trajectory ends, and what does not count, in numbers.
-- grain: one row per trajectory; its lock orders everybody who inserts events of the trajectory
-- inputs: written in the transaction that inserts the events
-- owner: ingest
create table if not exists trajectory_heads (
    tenant text not null,
    trajectory_id text not null,
    model text not null,
    started_on date not null,
    kind text not null default 'live',
    fencing_token bigint not null default -1,
    next_sequence bigint not null default 0,
    turn integer not null default -1,
    recorded_at timestamptz,
    ended text,
    released boolean not null default false,
    superseded bigint not null default 0,
    held_back bigint not null default 0,
    conflicts bigint not null default 0,
    duplicates bigint not null default 0,
    primary key (tenant, trajectory_id)
)
