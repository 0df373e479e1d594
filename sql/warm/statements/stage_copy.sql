-- stage_copy: rows on their way into trajectory_events.
-- grain: as trajectory_events
-- inputs: a journal
-- owner: ingest
copy trajectory_stage (
    tenant, trajectory_id, sequence_number, fencing_token, event_type, schema_version, turn, recorded_at, payload, salt,
    commitment, cryptographic_hash, writer, lsn, started_on, model, frame
) from stdin (format binary)
