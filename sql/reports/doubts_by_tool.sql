-- doubts_by_tool: which effects ended in doubt, and how were they settled?
-- grain: one row per tool and class of effect
-- inputs: tool_calls, doubts
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool                name of the tool
--   effect              read | local | idempotent | external
--   actions             actions with an intent
--   in_doubt            in doubt now
--   by_key              settled by sending the same key again
--   by_probe            settled by a probe
--   by_person           settled by a person
--   found_executed      settled: it had happened
--   found_not_executed  settled: it had not
--   late_results        results that came after the outcome
--   doubt_share         0 to 1: (in doubt now + settled) / actions
-- caveats: an action in flight or waiting past its deadline counts as in doubt (view doubts, by now()).
select
    coalesce(tool_calls.tool, 'unknown') as tool,
    coalesce(tool_calls.effect, 'unknown') as effect,
    count(*) as actions,
    count(doubts.action_id) as in_doubt,
    count(*) filter (where settled_how = 'key') as by_key,
    count(*) filter (where settled_how = 'probe') as by_probe,
    count(*) filter (where settled_how = 'person') as by_person,
    count(*) filter (where verdict = 'executed') as found_executed,
    count(*) filter (where verdict = 'not_executed') as found_not_executed,
    count(late_seq) as late_results,
    count(*) filter (where doubts.action_id is not null or settled_seq is not null) / count(*) as doubt_share
from tool_calls
left join doubts
    on tool_calls.tenant = doubts.tenant
    and tool_calls.trajectory_id = doubts.trajectory_id
    and tool_calls.action_id = doubts.action_id
where tool_calls.intent_seq is not null
    and tool_calls.started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and tool_calls.started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(tool_calls.tool, 'unknown'), coalesce(tool_calls.effect, 'unknown')
order by in_doubt desc, tool, effect
