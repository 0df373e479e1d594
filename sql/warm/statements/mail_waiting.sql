-- mail_waiting: the items of a trajectory in the order they are read.
-- grain: one row per item
-- inputs: trajectory_mail
-- owner: ingest
select mail_id, body from trajectory_mail
where tenant = %(tenant)s and trajectory_id = %(trajectory_id)s
order by posted_at, mail_id collate "C"
