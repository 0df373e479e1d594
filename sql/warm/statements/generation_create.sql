-- generation_create: take a generation; no row if it is taken.
-- grain: one row
-- inputs: trajectory_generations
-- owner: ingest
insert into trajectory_generations (trajectory_key, generation, body)
values (%(key)s, %(generation)s, %(body)s)
on conflict do nothing
returning 1
