-- Q06: one idempotency key, different arguments
-- proves: a key stands for one intention: it is never sent with other arguments, unless a person approved that repeat
-- clauses: SOC 2 CC8.1; ISO 42001 A.6.2.8
-- severity: high
-- grain: one row per key
-- applies: live
-- needs: -
-- inputs: intents, approval_requests, approval_resolutions
-- owner: pipelines
-- An intent without key or arguments hash is a finding of its own. An approved repeat (a request that names the
-- earlier action, granted before the intent, with the arguments as dispatched) is left out.
with granted as (
    select
        request.tenant, request.trajectory_id, request.approval_id, request.arguments_hash,
        min(answer.sequence_number) as granted_seq
    from approval_requests as request
    inner join approval_resolutions as answer
        on answer.tenant = request.tenant
            and answer.trajectory_id = request.trajectory_id
            and answer.approval_id = request.approval_id
            and answer.decision = 'granted'
    where in_scope(request.tenant, request.started_on) and request.repeats is not null
    group by request.tenant, request.trajectory_id, request.approval_id, request.arguments_hash
),
unapproved as (
    select
        intent.tenant,
        intent.trajectory_id,
        intent.sequence_number,
        intent.action_id,
        coalesce(nullif(intent.key, ''), 'none at ' || intent.sequence_number) as key,
        intent.arguments_hash,
        nullif(intent.key, '') is null or intent.arguments_hash is null as is_unknown
    from intents as intent
    left join granted
        on granted.tenant = intent.tenant
            and granted.trajectory_id = intent.trajectory_id
            and granted.approval_id = intent.approval
            and granted.arguments_hash = intent.arguments_hash
            and granted.granted_seq < intent.sequence_number
    where in_scope(intent.tenant, intent.started_on) and granted.approval_id is null
)
select
    tenant,
    trajectory_id,
    max(sequence_number) as sequence_number,
    arg_max(action_id, sequence_number) as action_id,
    key as object,
    array_agg(sequence_number order by sequence_number) as related,
    case
        when bool_or(is_unknown) then 'key or arguments hash is missing'
        else count(distinct arguments_hash) || ' different arguments under one key'
    end as detail
from unapproved
group by tenant, trajectory_id, key
having count(distinct arguments_hash) > 1 or bool_or(is_unknown)
