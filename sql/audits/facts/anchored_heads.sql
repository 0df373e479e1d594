-- anchored_heads: what anchors say stood at a trajectory's end: of the ledger, and of anchor files that were handed in.
-- grain: one row per anchor and trajectory
-- inputs: anchors, anchor_files, audited
-- built: once
with documents as (
    select tenant, anchor_id, false as is_outside, unnest(from_json(detail, '{"heads":["JSON"]}').heads) as head
    from anchors
    where getvariable('audit_tenant') is null or tenant = getvariable('audit_tenant')
    union all
    select tenant, anchor_id, true as is_outside, unnest(from_json(document, '{"heads":["JSON"]}').heads) as head
    from anchor_files
    where getvariable('audit_tenant') is null or tenant = getvariable('audit_tenant')
)
select
    tenant,
    anchor_id,
    is_outside,
    head ->> '$[0]' as trajectory_id,
    cast(head ->> '$[1]' as bigint) as sequence_number,
    head ->> '$[2]' as head_hash,
    cast(head ->> '$[3]' as date) as started_on
from documents
where in_scope(tenant, cast(head ->> '$[3]' as date))
