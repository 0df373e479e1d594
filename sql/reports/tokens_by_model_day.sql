-- tokens_by_model_day: how many tokens and dollars does each model take per day?
-- grain: one row per UTC day, served model and system number
-- inputs: usage_by_model_day
-- owner: pipelines
-- range: day of the call (UTC)
-- columns:
--   day                 UTC day of the call
--   served_model        model the provider says it served; `unknown` where it says none
--   system_no           system number
--   model_calls         attempts
--   not_kept            attempts whose reply was not kept
--   input_tokens        tokens, cached ones included
--   cached_read_tokens  tokens read from a cache
--   output_tokens       tokens
--   reasoning_tokens    tokens
--   cost_usd            US dollars
-- caveats: attempts that were not kept cost as well and are in every sum; a null sum means that no call of the
--   group reported that number; an unpriced call adds nothing to cost_usd.
select
    day,
    served_model,
    system_no,
    sum(model_calls) as model_calls,
    sum(not_kept) as not_kept,
    sum(input_tokens) as input_tokens,
    sum(cached_read_tokens) as cached_read_tokens,
    sum(output_tokens) as output_tokens,
    sum(reasoning_tokens) as reasoning_tokens,
    sum(cost_usd) as cost_usd
from usage_by_model_day
where day >= coalesce(getvariable('report_from'), date '0001-01-01')
    and day <= coalesce(getvariable('report_to'), date '9999-12-31')
group by day, served_model, system_no
order by day, served_model, system_no
