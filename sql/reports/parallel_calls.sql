-- parallel_calls: how many tool calls does one reply propose?
-- grain: one row per served model and number of calls
-- inputs: model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   served_model    model the provider says it served
--   calls_in_reply  tool calls proposed by one reply
--   replies         kept replies
--   reply_share     0 to 1: of the model's kept replies
-- caveats: proposed side by side does not mean run side by side: a harness may run them one after another.
select
    coalesce(served_model, 'unknown') as served_model,
    calls as calls_in_reply,
    count(*) as replies,
    count(*) / sum(count(*)) over (partition by coalesce(served_model, 'unknown')) as reply_share
from model_calls
where status = 'kept'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(served_model, 'unknown'), calls
order by served_model, calls_in_reply
