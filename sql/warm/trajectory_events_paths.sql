-- trajectory_events_paths: serves look-ups in the view tool_events by action, tool and idempotency key.
-- grain: events of tool calls
-- inputs: trajectory_events
-- owner: ingest
create index if not exists trajectory_events_paths on trajectory_events using gin (
    (payload -> 'action_id') jsonb_path_ops,
    (payload -> 'tool') jsonb_path_ops,
    (payload -> 'key') jsonb_path_ops
) where event_type in ('ToolIntent', 'ToolResult', 'ToolSettled', 'LateResult')
