-- Q13: secret in tool output that a later compaction took from the model's sight
-- proves: no secret lies in kept tool output that the model can no longer see
-- clauses: SOC 2 CC6.1, CC7.2; GDPR 17
-- severity: high
-- grain: one row per finding of the scanner and compaction
-- applies: live
-- needs: scan
-- inputs: hidden_secrets, compactions, contexts, blobs
-- owner: pipelines
-- An output stayed in sight only if a context before the compaction holds it among the items that the compaction kept,
-- or if the compaction names turns that do not include it; everything else counts as taken away (fail closed).
with places as (
    select
        context.tenant,
        context.trajectory_id,
        context.sequence_number as context_seq,
        try_cast(item.value ->> '$' as bigint) as item_seq,
        context.keep + cast(item.key as bigint) as place
    from contexts as context
    semi join hidden_secrets using (tenant, trajectory_id),
    json_each(to_json(context.append)) as item
    where in_scope(context.tenant, context.started_on)
),
hidden as (
    select
        secret.tenant,
        secret.trajectory_id,
        secret.sequence_number,
        secret.kind,
        secret.sha256,
        secret.turn,
        compaction.sequence_number as compacted_seq,
        compaction.keep,
        compaction.first_turn,
        compaction.last_turn,
        max_by(places.place, places.context_seq) as place
    from hidden_secrets as secret
    inner join compactions as compaction
        on compaction.tenant = secret.tenant
            and compaction.trajectory_id = secret.trajectory_id
            and compaction.sequence_number > secret.sequence_number
    left join places
        on places.tenant = secret.tenant
            and places.trajectory_id = secret.trajectory_id
            and places.item_seq = secret.sequence_number
            and places.context_seq < compaction.sequence_number
    left join blobs
        on blobs.tenant = secret.tenant and blobs.sha256 = secret.sha256
    where in_scope(secret.tenant, secret.started_on)
        and coalesce(secret.event_type, 'ToolResult') in ('ToolResult', 'LateResult', 'ToolSettled')
        and secret.is_present
        and (secret.sha256 is null or blobs.sha256 is not null)
    group by all
)
select
    tenant,
    trajectory_id,
    sequence_number,
    null::varchar as action_id,
    coalesce(sha256, kind) as object,
    array_agg(compacted_seq order by compacted_seq) as related,
    kind || ' is kept in tool output that a compaction took from the context' as detail
from hidden
where case
    when place is not null then place >= keep
    when first_turn is not null then turn between first_turn and last_turn
    else true
end
group by tenant, trajectory_id, sequence_number, kind, sha256
