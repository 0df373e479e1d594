-- synchronous_commit: this transaction is acknowledged only once it is durable.
-- grain: a setting of one transaction
-- inputs: none
-- owner: ingest
select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'
