-- trajectory_events_recorded_at: serves "the last events of a tenant", whatever their trajectory.
-- grain: as trajectory_events
-- inputs: trajectory_events
-- owner: ingest
create index if not exists trajectory_events_recorded_at on trajectory_events (recorded_at)
