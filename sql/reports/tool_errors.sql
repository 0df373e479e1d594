-- tool_errors: how often does each tool fail?
-- grain: one row per tool and system number
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool          name of the tool; `unknown` where none is recorded
--   system_no     system number
--   calls         actions of any stage
--   ended         actions with an outcome
--   errors        outcomes `error`
--   refused       outcomes `refused` (by policy or a person)
--   not_executed  outcomes `not_executed`
--   error_share   0 to 1: errors / ended
-- caveats: given-up actions count, because they happened; a tool that reports failure as ordinary output counts as
--   ok.
select
    coalesce(tool, 'unknown') as tool,
    system_no,
    count(*) as calls,
    count(status) as ended,
    count(*) filter (where status = 'error') as errors,
    count(*) filter (where status = 'refused') as refused,
    count(*) filter (where status = 'not_executed') as not_executed,
    count(*) filter (where status = 'error') / nullif(count(status), 0) as error_share
from tool_calls
where started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(tool, 'unknown'), system_no
order by errors desc, tool, system_no
