-- mail_read: one waiting item.
-- grain: one row
-- inputs: trajectory_mail
-- owner: ingest
select body from trajectory_mail
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s and mail_id = %(mail_id)s
