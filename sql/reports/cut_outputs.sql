-- cut_outputs: which tools' outputs are cut before the model sees them?
-- grain: one row per tool
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool                 name of the tool
--   outputs              outcomes with an output
--   cut                  outputs cut
--   cut_share            0 to 1: cut / outputs
--   whole_kept           cut outputs whose whole text is a blob
--   p50_whole_chars      characters before the cut, median of cut ones
--   p95_delivered_bytes  bytes delivered
-- caveats: only cuts that the harness recorded: a tool that shortens its own output does not show here; an outcome
--   without an output counts as `null`, 4 bytes.
select
    coalesce(tool, 'unknown') as tool,
    count(*) as outputs,
    count(cut_total) as cut,
    count(cut_total) / count(*) as cut_share,
    count(*) filter (where cut_total is not null and full_output_sha256 is not null) as whole_kept,
    quantile_cont(cut_total, 0.5) as p50_whole_chars,
    quantile_cont(output_bytes, 0.95) as p95_delivered_bytes
from tool_calls
where output_bytes is not null
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by coalesce(tool, 'unknown')
order by cut desc, tool
