-- model_drift: does a model behave otherwise than on the days before?
-- grain: one row per served model and UTC day
-- inputs: model_calls
-- owner: pipelines
-- range: day of the call (UTC)
-- columns:
--   served_model            model the provider says it served
--   day                     UTC day of the call
--   calls                   kept calls
--   output_tokens_per_call  tokens, mean of those that report
--   tools_per_reply         proposed calls, mean
--   days_before             days with calls among the seven rows before
--   output_change           that day / mean of the days before; 1 = as before
--   tools_change            that day / mean of the days before
-- caveats: other work on another day shifts these as well: drift is a question, not a proof (the audit q19
--   compares equal contexts); with --from the days before it are not seen.
with days as (
    select
        coalesce(served_model, 'unknown') as served_model,
        cast(timezone('UTC', recorded_at) as date) as day,
        count(*) as calls,
        avg(output_tokens) as output_tokens_per_call,
        avg(calls) as tools_per_reply
    from model_calls
    where status = 'kept'
        and not given_up
        and cast(timezone('UTC', recorded_at) as date) >= coalesce(getvariable('report_from'), date '0001-01-01')
        and cast(timezone('UTC', recorded_at) as date) <= coalesce(getvariable('report_to'), date '9999-12-31')
    group by coalesce(served_model, 'unknown'), cast(timezone('UTC', recorded_at) as date)
)
select
    served_model,
    day,
    calls,
    output_tokens_per_call,
    tools_per_reply,
    count(*) over before as days_before,
    output_tokens_per_call / nullif(avg(output_tokens_per_call) over before, 0) as output_change,
    tools_per_reply / nullif(avg(tools_per_reply) over before, 0) as tools_change
from days
window before as (partition by served_model order by day rows between 7 preceding and 1 preceding)
order by served_model, day
