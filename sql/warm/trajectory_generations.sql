-- trajectory_generations: the arbiter: which generation of fencing tokens is taken.
-- grain: one row per trajectory key and generation
-- inputs: the arbiter
-- owner: ingest
create table if not exists trajectory_generations (
    trajectory_key text not null,
    generation bigint not null,
    body bytea not null,
    primary key (trajectory_key, generation)
)
