-- checkpoint_pauses: how long do checkpoints hold agents up, and what do they write?
-- grain: one row per cause
-- inputs: checkpoints
-- owner: pipelines
-- range: day of the checkpoint (UTC)
-- columns:
--   cause          pause | move | before_effect | end | interval
--   checkpoints    checkpoints
--   trajectories   trajectories
--   p50_pause_ms   milliseconds, median
--   p95_pause_ms   milliseconds
--   total_pause_s  seconds
--   bytes_written  new bytes of all of them
--   p50_bytes      new bytes, median
-- caveats: bytes are what was new in the content store; `trajlake plan ID` turns these numbers into an interval.
select
    cause,
    count(*) as checkpoints,
    count(distinct (tenant, trajectory_id)) as trajectories,
    quantile_cont(pause_ms, 0.5) as p50_pause_ms,
    quantile_cont(pause_ms, 0.95) as p95_pause_ms,
    sum(pause_ms) / 1000 as total_pause_s,
    sum(bytes_written) as bytes_written,
    quantile_cont(bytes_written, 0.5) as p50_bytes
from checkpoints
where cast(timezone('UTC', recorded_at) as date) >= coalesce(getvariable('report_from'), date '0001-01-01')
    and cast(timezone('UTC', recorded_at) as date) <= coalesce(getvariable('report_to'), date '9999-12-31')
group by cause
order by total_pause_s desc, cause
