-- trajectory_heads_recorded_at: serves the status page, ordered by "last_recorded_at desc nulls last".
-- grain: as trajectory_heads
-- inputs: trajectory_heads
-- owner: ingest
create index if not exists trajectory_heads_recorded_at on trajectory_heads (recorded_at desc nulls last)
