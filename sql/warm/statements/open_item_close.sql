-- open_item_close: an outcome or an answer came.
-- grain: one item
-- inputs: trajectory_open_items
-- owner: ingest
delete from trajectory_open_items
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s and kind = %(kind)s
    and (item_id = %(item_id)s or %(item_id)s is null)
