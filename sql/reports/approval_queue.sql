-- approval_queue: which questions wait for a person, and since when?
-- grain: one row per tenant and tool
-- inputs: approvals_waiting
-- owner: pipelines
-- range: day of the request (UTC)
-- columns:
--   tenant        tenant
--   tool          tool that waits
--   waiting       requests
--   trajectories  trajectories that wait
--   oldest_at     when the oldest was asked
--   oldest_age_s  seconds
--   p50_age_s     seconds, median
--   expiring      requests that stop to hold within an hour
-- caveats: as of the snapshot: an answer that has not landed still waits here (the warm tier is live); the clock
--   is `report_now`, else now().
with asked as (
    select
        tenant,
        coalesce(tool, 'unknown') as tool,
        trajectory_id,
        requested_at,
        epoch_us(coalesce(getvariable('report_now'), now()) - requested_at) / 1e6 as age_s,
        expires_at < coalesce(getvariable('report_now'), now()) + interval 1 hour as is_expiring
    from approvals_waiting
    where cast(timezone('UTC', requested_at) as date) >= coalesce(getvariable('report_from'), date '0001-01-01')
        and cast(timezone('UTC', requested_at) as date) <= coalesce(getvariable('report_to'), date '9999-12-31')
)
select
    tenant,
    tool,
    count(*) as waiting,
    count(distinct trajectory_id) as trajectories,
    min(requested_at) as oldest_at,
    max(age_s) as oldest_age_s,
    quantile_cont(age_s, 0.5) as p50_age_s,
    count(*) filter (where is_expiring) as expiring
from asked
group by tenant, tool
order by oldest_age_s desc, tenant, tool
