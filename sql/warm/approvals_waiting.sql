-- approvals_waiting: questions that a person has not answered, longest waiting first when read by recorded_at.
-- grain: one row per open approval request of an unended trajectory
-- inputs: trajectory_open_items
-- owner: ingest
create or replace view approvals_waiting with (security_invoker = true) as
select
    item.tenant,
    item.trajectory_id,
    item.item_id as approval_id,
    item.action_id,
    item.tool,
    item.question,
    item.arguments_hash,
    item.requester,
    item.recorded_at as requested_at,
    item.until as expires_at,
    coalesce(item.until < now(), false) as expired
from trajectory_open_items as item
where item.kind = 'approval'
