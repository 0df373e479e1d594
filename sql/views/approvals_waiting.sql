-- approvals_waiting: questions that a person has not answered.
-- grain: one row per approval request without an answer that has not expired
-- inputs: approvals
-- owner: pipelines
select
    tenant,
    trajectory_id,
    approval_id,
    action_id,
    tool,
    arguments_hash,
    requester,
    question,
    requested_at,
    expires_at
from approvals
where state = 'waiting'
    and not given_up
    and (expires_at is null or expires_at > now())
