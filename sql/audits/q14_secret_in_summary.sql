-- Q14: secret survived into a summary
-- proves: no summary, which every later turn sends to the model again, holds a secret
-- clauses: SOC 2 CC6.1, CC7.2; GDPR 17
-- severity: critical
-- grain: one row per finding of the scanner
-- applies: live
-- needs: scan
-- inputs: hidden_secrets, compactions
-- owner: pipelines
select distinct
    secret.tenant,
    secret.trajectory_id,
    secret.sequence_number,
    null::varchar as action_id,
    coalesce(secret.sha256, secret.kind) as object,
    [compaction.sequence_number] as related,
    secret.kind || ' stands in the summary of a compaction' as detail
from hidden_secrets as secret
inner join compactions as compaction
    on compaction.tenant = secret.tenant
        and compaction.trajectory_id = secret.trajectory_id
        and (compaction.sequence_number = secret.sequence_number or compaction.reply = secret.sequence_number)
where in_scope(secret.tenant, secret.started_on)
