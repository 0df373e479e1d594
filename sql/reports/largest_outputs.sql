-- largest_outputs: which tool outputs are the largest?
-- grain: one row per action, the 50 largest
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tenant         tenant
--   trajectory_id  trajectory
--   action_id      action
--   tool           name of the tool
--   output_bytes   bytes delivered to the model
--   whole_chars    characters before the cut; null = not cut
--   output_sha256  blob of what was delivered; `trajlake cas get` writes it
-- caveats: bytes of the JSON text of what the model was given, or of its blob.
select
    tenant,
    trajectory_id,
    action_id,
    coalesce(tool, 'unknown') as tool,
    output_bytes,
    cut_total as whole_chars,
    output_sha256
from tool_calls
where output_bytes is not null
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
order by output_bytes desc, tenant, trajectory_id, action_id
limit 50
