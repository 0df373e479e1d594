-- stage_empty: what was staged has been taken.
-- grain: as trajectory_stage
-- inputs: trajectory_stage
-- owner: ingest
delete from trajectory_stage
