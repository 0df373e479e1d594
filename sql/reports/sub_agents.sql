-- sub_agents: how much of the work do sub-agents do?
-- grain: one row per agent and place (top, sub_agent)
-- inputs: trajectories, model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   agent         module:function of the agent; `unknown` where it is not recorded
--   place         top | sub_agent
--   trajectories  trajectories
--   model_calls   attempts
--   tool_calls    actions
--   tokens        input and output tokens
--   token_share   0 to 1: of the tokens of all rows
--   cost_usd      US dollars
-- caveats: a sub-agent is a trajectory that names the action which started it; branches are not sub-agents.
with spent as (
    select tenant, trajectory_id, sum(cost_usd) as cost_usd
    from model_calls
    group by tenant, trajectory_id
)
select
    coalesce(agent, 'unknown') as agent,
    case when parent_trajectory_id is null then 'top' else 'sub_agent' end as place,
    count(*) as trajectories,
    sum(model_calls) as model_calls,
    sum(tool_calls) as tool_calls,
    sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) as tokens,
    sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))
        / nullif(sum(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))) over (), 0) as token_share,
    sum(cost_usd) as cost_usd
from trajectories
left join spent using (tenant, trajectory_id)
where kind <> 'judgement'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(agent, 'unknown'), case when parent_trajectory_id is null then 'top' else 'sub_agent' end
order by agent, place desc
