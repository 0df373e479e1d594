-- model_retries: how many model calls are paid for and thrown away?
-- grain: one row per served model and system number
-- inputs: model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model     model the provider says it served; `unknown` where it says none (an error, say)
--   system_no        system number
--   attempts         attempts
--   kept             replies kept
--   rejected         replies refused by the harness
--   retried          replies asked for again
--   errors           attempts that gave no reply
--   not_kept_share   0 to 1: of attempts
--   tokens_not_kept  input and output tokens of attempts not kept
-- caveats: an attempt that failed before the provider answered names no model; imports of formats without attempts
--   show kept replies only.
select
    coalesce(served_model, 'unknown') as served_model,
    system_no,
    count(*) as attempts,
    count(*) filter (where status = 'kept') as kept,
    count(*) filter (where status = 'rejected') as rejected,
    count(*) filter (where status = 'retried') as retried,
    count(*) filter (where status = 'error') as errors,
    count(*) filter (where status <> 'kept') / count(*) as not_kept_share,
    coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) filter (where status <> 'kept'), 0)
        as tokens_not_kept
from model_calls
where started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served_model, 'unknown'), system_no
order by not_kept_share desc, served_model, system_no
