-- trajectory_events: every event as it was shipped: canonical, superseded, held back and conflicting ones alike.
-- grain: one row per event and hash; true duplicates vanish (on conflict do nothing)
-- inputs: journals (trajlake ship --warm), agents that replicate
-- owner: ingest
-- notes: payload is for queries only, frame is what resume and verify read; both and the salt are null once erased.
create table if not exists trajectory_events (
    tenant text not null,
    trajectory_id text not null,
    sequence_number bigint not null,
    fencing_token bigint not null,
    event_type text not null,
    schema_version integer not null,
    turn integer not null,
    recorded_at timestamptz not null,
    payload jsonb,
    salt bytea,
    commitment bytea not null,
    cryptographic_hash bytea not null,
    writer text not null,
    lsn bigint not null,
    started_on date not null,
    model text not null,
    frame bytea,
    created_at timestamptz generated always as (recorded_at) stored,
    primary key (tenant, trajectory_id, sequence_number, fencing_token, cryptographic_hash)
) partition by hash (trajectory_id)
