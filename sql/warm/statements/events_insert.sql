-- events_insert: what is staged and not there yet. One order for everybody, so that two shippers never wait in a ring.
-- grain: as trajectory_events
-- inputs: trajectory_stage
-- owner: ingest
insert into trajectory_events (
    tenant, trajectory_id, sequence_number, fencing_token, event_type, schema_version, turn, recorded_at, payload, salt,
    commitment, cryptographic_hash, writer, lsn, started_on, model, frame
)
select
    tenant, trajectory_id, sequence_number, fencing_token, event_type, schema_version, turn, recorded_at, payload, salt,
    commitment, cryptographic_hash, writer, lsn, started_on, model, frame
from trajectory_stage
order by tenant, trajectory_id, sequence_number, fencing_token, cryptographic_hash
on conflict do nothing
returning tenant, trajectory_id
