-- blob_put: hold a blob; one that is there gets a fresh date.
-- grain: one row
-- inputs: trajectory_blobs
-- owner: ingest
insert into trajectory_blobs (tenant, sha256, data) values (%(tenant)s, %(sha256)s, %(data)s)
on conflict (tenant, sha256) do update set put_at = now()
