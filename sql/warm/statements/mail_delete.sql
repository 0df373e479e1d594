-- mail_delete: remove an item.
-- grain: one row or none
-- inputs: trajectory_mail
-- owner: ingest
delete from trajectory_mail
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s and mail_id = %(mail_id)s
