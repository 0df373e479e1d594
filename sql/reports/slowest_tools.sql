-- slowest_tools: which tools take the time?
-- grain: one row per tool
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool        name of the tool
--   timed       actions with a duration
--   total_s     seconds
--   p50_ms      milliseconds, median
--   p95_ms      milliseconds
--   max_ms      milliseconds
--   time_share  0 to 1: of the time of all tools
-- caveats: the duration is what the tool reports, else the time from intent to outcome by the writer's clock
--   (waiting for an asynchronous job included); a settlement is no
--   duration; replayed outcomes are left out.
with timed as (
    select
        coalesce(tool, 'unknown') as tool,
        coalesce(duration_ms, case when settled_seq is null then epoch_us(result_at - intent_at) / 1000 end)
            as duration_ms
    from tool_calls
    where status in ('ok', 'error')
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
)
select
    tool,
    count(*) as timed,
    sum(duration_ms) / 1000 as total_s,
    quantile_cont(duration_ms, 0.5) as p50_ms,
    quantile_cont(duration_ms, 0.95) as p95_ms,
    max(duration_ms) as max_ms,
    sum(duration_ms) / nullif(sum(sum(duration_ms)) over (), 0) as time_share
from timed
where duration_ms is not null
group by tool
order by total_s desc, tool
