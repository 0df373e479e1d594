-- mail_post: create an item; no row if one of its id is waiting.
-- grain: one row
-- inputs: trajectory_mail
-- owner: ingest
insert into trajectory_mail (tenant, trajectory_id, mail_id, kind, posted_at, body)
values (%(tenant)s, %(trajectory_id)s, %(mail_id)s, %(kind)s, %(posted_at)s, %(body)s)
on conflict do nothing
returning 1
