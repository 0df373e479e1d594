-- trajectory_tokens: the opening event of every fencing token; outlives the erasure of the event's payload.
-- grain: one row per opening event and hash
-- inputs: written in the transaction that inserts the event
-- owner: ingest
create table if not exists trajectory_tokens (
    tenant text not null,
    trajectory_id text not null,
    fencing_token bigint not null,
    start bigint not null,
    cryptographic_hash bytea not null,
    after_token bigint,
    after_sequence bigint not null,
    after_hash text not null,
    primary key (tenant, trajectory_id, fencing_token, start, cryptographic_hash)
)
