-- trajectory_open_items: what is open in the canonical history: intents without outcome, questions without answer.
-- grain: one row per trajectory, kind ('intent' or 'approval') and item (action id or approval id)
-- inputs: written in the transaction that inserts the events
-- owner: ingest
create table if not exists trajectory_open_items (
    tenant text not null,
    trajectory_id text not null,
    kind text not null,
    item_id text not null,
    action_id text not null,
    sequence_number bigint not null,
    fencing_token bigint not null,
    recorded_at timestamptz not null,
    tool text not null,
    effect text not null,
    attempt integer not null,
    asynchronous boolean not null,
    arguments_hash text not null,
    requester text,
    question text not null,
    until timestamptz,
    primary key (tenant, trajectory_id, kind, item_id)
)
