-- blob_get: one blob.
-- grain: one row
-- inputs: trajectory_blobs
-- owner: ingest
select data from trajectory_blobs where tenant = %(tenant)s and sha256 = %(sha256)s
