-- Q23: action under a superseded goal
-- proves: every action was dispatched under the goal in force at that moment
-- clauses: EU AI Act 12(1)-(2); ISO 42001 A.6.2.8
-- severity: medium
-- grain: one row per ToolIntent
-- applies: live
-- needs: -
-- inputs: intents, standing, roll_backs, audited
-- owner: pipelines
-- The goal in force is that of the latest GoalRevised no roll-back gave up, else that of the start (0; an intent says
-- nothing or 0). A branch without a goal of its own works under its ancestor's, named by a pair.
with goals as (
    select tenant, trajectory_id, sequence_number, sequence_number as goal_seq
    from standing
    where in_scope(tenant, started_on) and event_type = 'GoalRevised'
    union all
    select
        rolled.tenant,
        rolled.trajectory_id,
        rolled.sequence_number,
        coalesce(
            max(goal.sequence_number) filter (where coalesce(goal.void_at > rolled.sequence_number, true)), 0
        ) as goal_seq
    from roll_backs as rolled
    inner join standing as goal
        on goal.tenant = rolled.tenant
            and goal.trajectory_id = rolled.trajectory_id
            and goal.event_type = 'GoalRevised'
            and goal.sequence_number < rolled.sequence_number
    where in_scope(rolled.tenant, rolled.started_on)
    group by rolled.tenant, rolled.trajectory_id, rolled.sequence_number
)
select
    intent.tenant,
    intent.trajectory_id,
    intent.sequence_number,
    intent.action_id,
    null::varchar as object,
    [coalesce(goals.goal_seq, 0)] as related,
    'names goal ' || coalesce(intent.goal ->> '$', 'none') || ', in force was ' || coalesce(goals.goal_seq, 0) as detail
from intents as intent
inner join audited
    on audited.tenant = intent.tenant and audited.trajectory_id = intent.trajectory_id
asof left join goals
    on goals.tenant = intent.tenant
        and goals.trajectory_id = intent.trajectory_id
        and goals.sequence_number < intent.sequence_number
where in_scope(intent.tenant, intent.started_on)
    and case
        when intent.goal is null then coalesce(goals.goal_seq, 0) <> 0
        when json_type(intent.goal) = 'ARRAY' then not audited.is_branch or goals.goal_seq is not null
        else coalesce(goals.goal_seq, 0) is distinct from try_cast(intent.goal ->> '$' as bigint)
    end
