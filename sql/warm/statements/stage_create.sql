-- stage_create: a place for rows that may be there already; empty again after every transaction.
-- grain: as trajectory_events
-- inputs: trajectory_events
-- owner: ingest
create temporary table if not exists trajectory_stage (like trajectory_events including generated) on commit delete rows
