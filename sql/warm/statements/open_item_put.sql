-- open_item_put: an intent without outcome, a question without answer.
-- grain: one item
-- inputs: trajectory_open_items
-- owner: ingest
insert into trajectory_open_items (
    tenant, trajectory_id, kind, item_id, action_id, sequence_number, fencing_token, recorded_at, tool, effect, attempt,
    asynchronous, arguments_hash, requester, question, until
)
values (
    %(tenant)s, %(trajectory_id)s, %(kind)s, %(item_id)s, %(action_id)s, %(sequence_number)s, %(fencing_token)s,
    to_timestamp(%(recorded_at_us)s / 1000000.0), %(tool)s, %(effect)s, %(attempt)s, %(asynchronous)s,
    %(arguments_hash)s, %(requester)s, %(question)s, to_timestamp(%(until_us)s / 1000000.0)
)
on conflict (tenant, trajectory_id, kind, item_id) do update
set
    action_id = excluded.action_id,
    sequence_number = excluded.sequence_number,
    fencing_token = excluded.fencing_token,
    recorded_at = excluded.recorded_at,
    tool = excluded.tool,
    effect = excluded.effect,
    attempt = excluded.attempt,
    asynchronous = excluded.asynchronous,
    arguments_hash = excluded.arguments_hash,
    requester = excluded.requester,
    question = excluded.question,
    until = excluded.until
