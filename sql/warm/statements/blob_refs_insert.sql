-- blob_refs_insert: which blobs the events of a batch name.
-- grain: one row per blob and trajectory
-- inputs: trajectory_blob_refs
-- owner: ingest
insert into trajectory_blob_refs (tenant, sha256, trajectory_id)
select * from unnest(%(tenants)s::text[], %(sha256s)s::bytea[], %(trajectory_ids)s::text[])
on conflict do nothing
