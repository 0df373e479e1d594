-- tool_events: intents, results and settlements, to look up by what they are about:
--     select * from tool_events where action_id @> '"57.0"'
-- grain: one row per canonical event of a tool call
-- inputs: events
-- owner: ingest
create or replace view tool_events with (security_invoker = true) as
select
    tenant,
    trajectory_id,
    sequence_number,
    event_type,
    turn,
    recorded_at,
    payload -> 'action_id' as action_id,
    payload -> 'tool' as tool,
    payload -> 'key' as key,
    payload ->> 'status' as status,
    payload ->> 'verdict' as verdict,
    payload
from events
where event_type in ('ToolIntent', 'ToolResult', 'ToolSettled', 'LateResult')
