-- durable_settings: whether this server's acknowledgement means what a replica promises.
-- grain: one row
-- inputs: none
-- owner: ingest
select current_setting('fsync'), current_setting('full_page_writes')
