-- approval_waits: how long do agents wait for approval, and what is the answer?
-- grain: one row per tool
-- inputs: approvals
-- owner: pipelines
-- range: day of the request (UTC)
-- columns:
--   tool          tool that was asked about
--   asked         requests
--   granted       answered yes
--   denied        answered no
--   open          not answered
--   p50_wait_s    seconds from request to answer, median
--   p95_wait_s    seconds
--   total_wait_s  seconds
-- caveats: the answer's time is when it entered the trajectory, which a parked agent does only once it is resumed;
--   given-up requests are left out.
with asked as (
    select
        coalesce(tool, 'unknown') as tool,
        state,
        epoch_us(resolved_at - requested_at) / 1e6 as wait_s
    from approvals
    where requested_seq is not null
        and not given_up
        and cast(timezone('UTC', requested_at) as date) >= coalesce(getvariable('report_from'), date '0001-01-01')
        and cast(timezone('UTC', requested_at) as date) <= coalesce(getvariable('report_to'), date '9999-12-31')
)
select
    tool,
    count(*) as asked,
    count(*) filter (where state = 'granted') as granted,
    count(*) filter (where state = 'denied') as denied,
    count(*) filter (where state = 'waiting') as open,
    quantile_cont(wait_s, 0.5) as p50_wait_s,
    quantile_cont(wait_s, 0.95) as p95_wait_s,
    coalesce(sum(wait_s), 0) as total_wait_s
from asked
group by tool
order by total_wait_s desc, tool
