-- trajectory_open_items_recorded_at: serves the queues: what has waited longest.
-- grain: as trajectory_open_items
-- inputs: trajectory_open_items
-- owner: ingest
create index if not exists trajectory_open_items_recorded_at on trajectory_open_items (kind, recorded_at)
