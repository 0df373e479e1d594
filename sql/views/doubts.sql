-- doubts: effects of which nobody knows whether they happened.
-- grain: one row per action in doubt
-- inputs: tool_calls
-- owner: pipelines
-- Tables hold no clock: an action in flight or waiting past its deadline counts as in doubt here, by now().
select
    tenant,
    trajectory_id,
    action_id,
    turn,
    tool,
    effect,
    attempts,
    idempotency_key,
    arguments,
    intent_seq,
    intent_at,
    deadline_at,
    started_on,
    model
from tool_calls
where stage = 'in_doubt'
    or (stage in ('in_flight', 'waiting') and deadline_at < now())
