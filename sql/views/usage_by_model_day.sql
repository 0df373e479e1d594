-- usage_by_model_day: tokens and cost by the model that was served, never by the partition.
-- grain: one row per tenant, UTC day, served model and system number
-- inputs: model_calls
-- owner: pipelines
-- A null sum means that no call of the group reported that number.
select
    tenant,
    cast(timezone('UTC', recorded_at) as date) as day,
    coalesce(served_model, 'unknown') as served_model,
    system_no,
    count(*) as model_calls,
    count(*) filter (where status <> 'kept') as not_kept,
    sum(input_tokens) as input_tokens,
    sum(cached_read_tokens) as cached_read_tokens,
    sum(cache_write_tokens) as cache_write_tokens,
    sum(output_tokens) as output_tokens,
    sum(reasoning_tokens) as reasoning_tokens,
    sum(cost_usd) as cost_usd
from model_calls
group by all
