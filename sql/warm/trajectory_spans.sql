-- trajectory_spans: the line that counts: which numbers belong to which token (stop null: open end).
-- grain: one row per trajectory and token on the line
-- inputs: canonical() of schemas/history.py over trajectory_events and trajectory_tokens
-- owner: ingest
create table if not exists trajectory_spans (
    tenant text not null,
    trajectory_id text not null,
    fencing_token bigint not null,
    start bigint not null,
    stop bigint,
    primary key (tenant, trajectory_id, fencing_token)
)
