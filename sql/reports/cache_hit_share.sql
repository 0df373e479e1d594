-- cache_hit_share: what share of the input is read from the provider's cache?
-- grain: one row per served model and system number
-- inputs: model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model        model the provider says it served
--   system_no           system number
--   calls               attempts
--   reporting           attempts that state both input and cached tokens
--   input_tokens        tokens of reporting attempts
--   cached_read_tokens  tokens of reporting attempts read from a cache
--   cache_write_tokens  tokens of reporting attempts written to a cache
--   hit_share           0 to 1: cached_read_tokens / input_tokens
-- caveats: only reporting attempts enter the share; a provider that leaves the number out is not one that has no
--   cache.
select
    coalesce(served_model, 'unknown') as served_model,
    system_no,
    count(*) as calls,
    count(*) filter (where input_tokens is not null and cached_read_tokens is not null) as reporting,
    sum(input_tokens) filter (where cached_read_tokens is not null) as input_tokens,
    sum(cached_read_tokens) filter (where input_tokens is not null) as cached_read_tokens,
    sum(cache_write_tokens) filter (where input_tokens is not null and cached_read_tokens is not null)
        as cache_write_tokens,
    sum(cached_read_tokens) filter (where input_tokens is not null)
        / nullif(sum(input_tokens) filter (where cached_read_tokens is not null), 0) as hit_share
from model_calls
where started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served_model, 'unknown'), system_no
order by served_model, system_no
