-- heads_create: a head for every trajectory of a batch that has none yet.
-- grain: one row per new trajectory
-- inputs: trajectory_heads
-- owner: ingest
insert into trajectory_heads (tenant, trajectory_id, model, started_on)
select * from unnest(%(tenants)s::text[], %(trajectory_ids)s::text[], %(models)s::text[], %(started_on)s::date[])
on conflict do nothing
