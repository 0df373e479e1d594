-- open_items_delete: everything open in one trajectory, to be written anew.
-- grain: every item of one trajectory
-- inputs: trajectory_open_items
-- owner: ingest
delete from trajectory_open_items where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
