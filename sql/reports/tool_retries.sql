-- tool_retries: which tools need more than one attempt?
-- grain: one row per tool and system number
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool            name of the tool
--   system_no       system number
--   actions         actions with an intent
--   retried         actions with more than one intent
--   intents         intents in all
--   most_intents    largest number for one action
--   ok_after_retry  retried actions that ended ok
--   retried_share   0 to 1: retried / actions
-- caveats: an attempt is an intent: a new call with the same arguments that the model proposed is another action
--   (see repeated_calls); imports have no intents.
select
    coalesce(tool, 'unknown') as tool,
    system_no,
    count(*) as actions,
    count(*) filter (where attempts > 1) as retried,
    sum(attempts) as intents,
    max(attempts) as most_intents,
    count(*) filter (where attempts > 1 and status = 'ok') as ok_after_retry,
    count(*) filter (where attempts > 1) / count(*) as retried_share
from tool_calls
where attempts > 0
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(tool, 'unknown'), system_no
order by retried desc, tool, system_no
