-- stop_reasons: why do replies end?
-- grain: one row per served model and stop reason
-- inputs: model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model       model the provider says it served
--   stop_reason        as the provider wrote it; `none` where it gave none
--   replies            kept replies
--   reply_share        0 to 1: of the model's kept replies
--   p50_output_tokens  tokens, median
-- caveats: providers name the same thing differently (`length`, `max_tokens`): nothing is translated.
select
    coalesce(served_model, 'unknown') as served_model,
    coalesce(stop_reason, 'none') as stop_reason,
    count(*) as replies,
    count(*) / sum(count(*)) over (partition by coalesce(served_model, 'unknown')) as reply_share,
    quantile_cont(output_tokens, 0.5) as p50_output_tokens
from model_calls
where status = 'kept'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served_model, 'unknown'), coalesce(stop_reason, 'none')
order by served_model, replies desc, stop_reason
