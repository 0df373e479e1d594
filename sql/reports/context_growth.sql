-- context_growth: how does the context grow with the turns?
-- grain: one row per system number and band of turns (0, 1, 2-3, 4-7, ...; -1 is the prologue)
-- inputs: model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   system_no         system number
--   first_turn        first turn of the band
--   last_turn         last turn of the band
--   calls             kept calls of the agent itself
--   p50_input_tokens  tokens, median
--   p95_input_tokens  tokens
--   p50_items         items of the context, median
-- caveats: long runs fill the late bands alone, so compare a band with itself over time; calls for other purposes
--   (a summary, say) and given-up ones are left out.
with banded as (
    select
        system_no,
        case when turn < 1 then turn else cast(power(2, floor(log2(turn))) as integer) end as first_turn,
        input_tokens,
        context_kept + context_appended as items
    from model_calls
    where status = 'kept'
        and not given_up
        and coalesce(purpose, 'act') = 'act'
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
)
select
    system_no,
    first_turn,
    case when first_turn < 1 then first_turn else 2 * first_turn - 1 end as last_turn,
    count(*) as calls,
    quantile_cont(input_tokens, 0.5) as p50_input_tokens,
    quantile_cont(input_tokens, 0.95) as p95_input_tokens,
    quantile_cont(items, 0.5) as p50_items
from banded
group by system_no, first_turn
order by system_no, first_turn
