-- is_in_doubt: whether nobody waits any more for an intent without outcome (schemas/state/stages.py says the rule).
-- grain: a function of one open intent, its trajectory's head and its lease record (nulls: none in this database)
-- inputs: none
-- owner: ingest
-- notes: where leases are not kept in this database, a tenure counts as alive until it is closed or its call's time is up.
create or replace function is_in_doubt(
    until timestamptz, asynchronous boolean, intent_token bigint, head_token bigint, released boolean,
    lease_token bigint, lease_expires_at timestamptz
) returns boolean
language sql stable
return coalesce(until < now(), false)
    or (
        not asynchronous
        and (
            head_token > intent_token
            or released
            or coalesce(lease_token > intent_token, false)
            or (lease_token is not null and coalesce(lease_expires_at <= now(), true))
        )
    )
