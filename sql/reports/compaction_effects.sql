-- compaction_effects: what does a compaction of the context save?
-- grain: one row per trigger
-- inputs: events, model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   trigger            what set it off; `unknown` where it is not recorded
--   compactions        Compacted events
--   reporting          those that state tokens before and after
--   p50_tokens_before  tokens as stated, median
--   p50_tokens_after   tokens as stated, median
--   p50_left_share     0 to 1: after / before, median
--   p50_input_before   input tokens of the agent's last call before it, median
--   p50_input_after    input tokens of its first call after it, median
-- caveats: stated numbers are the harness's own, the two input columns the provider's; given-up compactions are
--   counted with the others.
with compactions as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        coalesce(nullif(payload ->> '$.trigger', ''), 'unknown') as trigger,
        cast(payload ->> '$.tokens_before' as bigint) as tokens_before,
        cast(payload ->> '$.tokens_after' as bigint) as tokens_after
    from events
    where event_type = 'Compacted'
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
),
calls as (
    select tenant, trajectory_id, sequence_number, input_tokens
    from model_calls
    where status = 'kept' and coalesce(purpose, 'act') = 'act'
)
select
    trigger,
    count(*) as compactions,
    count(*) filter (where tokens_before is not null and tokens_after is not null) as reporting,
    quantile_cont(tokens_before, 0.5) as p50_tokens_before,
    quantile_cont(tokens_after, 0.5) as p50_tokens_after,
    quantile_cont(tokens_after / nullif(tokens_before, 0), 0.5) as p50_left_share,
    quantile_cont(earlier.input_tokens, 0.5) as p50_input_before,
    quantile_cont(later.input_tokens, 0.5) as p50_input_after
from compactions
asof left join calls as earlier
    on compactions.tenant = earlier.tenant
    and compactions.trajectory_id = earlier.trajectory_id
    and compactions.sequence_number >= earlier.sequence_number
asof left join calls as later
    on compactions.tenant = later.tenant
    and compactions.trajectory_id = later.trajectory_id
    and compactions.sequence_number <= later.sequence_number
group by trigger
order by trigger
