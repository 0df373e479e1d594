-- Q12: budget overspend
-- proves: spend never passed the limit in force
-- clauses: SOC 2 CC6.1, CC7.2; ISO 42001 A.6.2.8
-- severity: medium
-- grain: one row per unit and event that spends beyond the limit
-- applies: live
-- needs: -
-- inputs: budget_grants, model_calls, intents, results, settlements, roll_backs, events
-- owner: pipelines
-- Units: turns, model_calls, tool_calls, input_tokens and output_tokens are counted; any other comes from costs. An
-- effect that was executed without a result spends what its intent reserved. Spend counts what roll-backs gave up.
-- An amount that is no decimal is a finding. A limit that is no decimal allows nothing.
with limits as (
    select
        budget.tenant,
        budget.trajectory_id,
        budget.sequence_number,
        unit.key as unit,
        coalesce(try_cast(unit.value ->> '$' as decimal(38, 9)), 0) as amount
    from budget_grants as budget, json_each(budget.limits) as unit
    where in_scope(budget.tenant, budget.started_on)
),
limited as (
    select distinct tenant, trajectory_id
    from limits
),
outcomes as (
    select
        outcome.*,
        lag(sequence_number) over (
            partition by tenant, trajectory_id, action_id order by sequence_number
        ) as earlier_seq
    from (
        select tenant, trajectory_id, action_id, sequence_number, cost, false as books_reserved
        from results
        semi join limited using (tenant, trajectory_id)
        where in_scope(results.tenant, results.started_on)
        union all
        select
            tenant,
            trajectory_id,
            action_id,
            sequence_number,
            null as cost,
            coalesce(event_type = 'LateResult' or verdict = 'executed', true) as books_reserved
        from settlements
        semi join limited using (tenant, trajectory_id)
        where in_scope(settlements.tenant, settlements.started_on)
    ) as outcome
),
costs as (
    select tenant, trajectory_id, sequence_number, cast(cost as json) as cost
    from model_calls
    semi join limited using (tenant, trajectory_id)
    where in_scope(model_calls.tenant, model_calls.started_on) and cost is not null
    union all
    select tenant, trajectory_id, sequence_number, cost
    from outcomes
    where cost is not null
    union all
    select outcome.tenant, outcome.trajectory_id, outcome.sequence_number, intent.reserved as cost
    from outcomes as outcome
    asof join intents as intent
        on intent.tenant = outcome.tenant
            and intent.trajectory_id = outcome.trajectory_id
            and intent.action_id = outcome.action_id
            and intent.sequence_number < outcome.sequence_number
    where outcome.books_reserved
        and intent.reserved is not null
        and coalesce(outcome.earlier_seq < intent.sequence_number, true)
),
turns as (
    select event.tenant, event.trajectory_id, event.turn, min(event.sequence_number) as sequence_number
    from events as event
    semi join (select tenant, trajectory_id from limits where unit = 'turns') as counted
        on counted.tenant = event.tenant and counted.trajectory_id = event.trajectory_id
    asof left join roll_backs as rolled
        on rolled.tenant = event.tenant
            and rolled.trajectory_id = event.trajectory_id
            and rolled.sequence_number < event.sequence_number
    where in_scope(event.tenant, event.started_on) and event.turn >= 0 and event.event_type <> 'RolledBack'
    group by event.tenant, event.trajectory_id, event.turn, rolled.sequence_number
),
spending as (
    select
        costs.tenant,
        costs.trajectory_id,
        costs.sequence_number,
        unit.key as unit,
        try_cast(unit.value ->> '$' as decimal(38, 9)) as amount
    from costs, json_each(costs.cost) as unit
    union all
    select tenant, trajectory_id, sequence_number, unnest(['model_calls', 'input_tokens', 'output_tokens']) as unit,
        unnest([1, coalesce(input_tokens, 0), coalesce(output_tokens, 0)]) as amount
    from model_calls
    semi join limited using (tenant, trajectory_id)
    where in_scope(model_calls.tenant, model_calls.started_on)
    union all
    select tenant, trajectory_id, sequence_number, 'tool_calls' as unit, 1 as amount
    from intents
    semi join limited using (tenant, trajectory_id)
    where in_scope(intents.tenant, intents.started_on) and attempt = 1
    union all
    select tenant, trajectory_id, sequence_number, 'turns' as unit, 1 as amount
    from turns
),
running as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        unit,
        sum(amount) as added,
        bool_or(amount is null) as is_unknown,
        sum(coalesce(sum(amount), 0)) over (
            partition by tenant, trajectory_id, unit order by sequence_number
        ) as spent
    from spending
    group by tenant, trajectory_id, sequence_number, unit
)
select
    running.tenant,
    running.trajectory_id,
    running.sequence_number,
    null::varchar as action_id,
    running.unit as object,
    [limits.sequence_number] as related,
    case
        when running.is_unknown then 'an amount of ' || running.unit || ' is no decimal'
        else 'spent ' || cast(cast(running.spent as double) as varchar)
            || ' of ' || cast(cast(limits.amount as double) as varchar) || ' ' || running.unit
    end as detail
from running
asof join limits
    on limits.tenant = running.tenant
        and limits.trajectory_id = running.trajectory_id
        and limits.unit = running.unit
        and limits.sequence_number < running.sequence_number
where running.is_unknown or (running.spent > limits.amount and running.added > 0)
