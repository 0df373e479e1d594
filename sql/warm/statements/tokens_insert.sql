-- tokens_insert: the opening events of a batch.
-- grain: one row per opening event
-- inputs: trajectory_tokens
-- owner: ingest
insert into trajectory_tokens
    (tenant, trajectory_id, fencing_token, start, cryptographic_hash, after_token, after_sequence, after_hash)
values (
    %(tenant)s, %(trajectory_id)s, %(fencing_token)s, %(start)s, %(hash)s, %(after_token)s, %(after_sequence)s,
    %(after_hash)s
)
on conflict do nothing
