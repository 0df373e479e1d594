-- Q22: reply not reproducible
-- proves: what the model saw at every reply can be built again: its context is recorded before it, and every item of it is there
-- clauses: EU AI Act 12(1)-(2); ISO 42001 A.6.2.8; NIST AI RMF MEASURE 2
-- severity: medium
-- grain: one row per ModelReplied
-- applies: live
-- needs: -
-- inputs: model_calls, contexts, blob_refs, blobs, payload_faults, events, audited
-- owner: pipelines
-- An item that an ancestor holds is audited in the ancestor.
with recursive lost as (
    select tenant, trajectory_id, sequence_number
    from payload_faults
    where in_scope(tenant, started_on)
    union
    select ref.tenant, ref.trajectory_id, ref.sequence_number
    from blob_refs as ref
    inner join audited
        on audited.tenant = ref.tenant and audited.trajectory_id = ref.trajectory_id and audited.is_live
    anti join blobs
        on blobs.tenant = ref.tenant and blobs.sha256 = ref.sha256
    where in_scope(audited.tenant, audited.started_on)
),
gapped as (
    select tenant, trajectory_id
    from events
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id
    having count(*) <> max(sequence_number) + 1
),
suspect as (
    select tenant, trajectory_id
    from lost
    union
    select tenant, trajectory_id
    from gapped
),
appended as (
    select
        context.tenant,
        context.trajectory_id,
        context.sequence_number as context_seq,
        item.ordinal + context.keep - 1 as place,
        json_type(item.value) = 'ARRAY' as is_ancestral,
        try_cast(item.value ->> '$' as bigint) as item_seq
    from contexts as context,
        (select unnest(context.append) as value, generate_subscripts(context.append, 1) as ordinal) as item
    where in_scope(context.tenant, context.started_on)
),
faulty as (
    select appended.tenant, appended.trajectory_id, appended.context_seq, appended.place
    from appended
    where not coalesce(appended.is_ancestral, false)
        and coalesce(appended.item_seq >= appended.context_seq or appended.item_seq < 0, true)
    union all
    select appended.tenant, appended.trajectory_id, appended.context_seq, appended.place
    from appended
    semi join gapped using (tenant, trajectory_id)
    anti join events as event
        on event.tenant = appended.tenant
            and event.trajectory_id = appended.trajectory_id
            and event.sequence_number = appended.item_seq
            and in_scope(event.tenant, event.started_on)
    where not coalesce(appended.is_ancestral, false)
    union all
    select appended.tenant, appended.trajectory_id, appended.context_seq, appended.place
    from appended
    inner join lost
        on lost.tenant = appended.tenant
            and lost.trajectory_id = appended.trajectory_id
            and lost.sequence_number = appended.item_seq
    union all
    select context.tenant, context.trajectory_id, context.sequence_number as context_seq, -1 as place
    from contexts as context
    inner join lost
        on lost.tenant = context.tenant
            and lost.trajectory_id = context.trajectory_id
            and lost.sequence_number = context.sequence_number
    where in_scope(context.tenant, context.started_on)
),
based as (
    select
        context.tenant,
        context.trajectory_id,
        context.sequence_number,
        context.keep,
        max(base.sequence_number) as base_seq
    from contexts as context
    semi join faulty using (tenant, trajectory_id)
    inner join contexts as base
        on base.tenant = context.tenant
            and base.trajectory_id = context.trajectory_id
            and base.sequence_number <= try_cast(context.base ->> '$' as bigint)
    where in_scope(context.tenant, context.started_on)
    group by context.tenant, context.trajectory_id, context.sequence_number, context.keep
),
broken as (
    select tenant, trajectory_id, context_seq, place
    from faulty
    union
    select based.tenant, based.trajectory_id, based.sequence_number as context_seq, broken.place
    from broken
    inner join based
        on based.tenant = broken.tenant
            and based.trajectory_id = broken.trajectory_id
            and based.base_seq = broken.context_seq
            and based.keep > broken.place
),
broken_contexts as (
    select tenant, trajectory_id, context_seq, count(*) as missing
    from broken
    group by tenant, trajectory_id, context_seq
)
select
    reply.tenant,
    reply.trajectory_id,
    reply.sequence_number,
    null::varchar as action_id,
    null::varchar as object,
    case when reply.context_seq is null then []::bigint[] else [reply.context_seq] end as related,
    case
        when context.sequence_number is null then 'its context is not recorded before it'
        else broken_contexts.missing || ' items of its context are gone'
    end as detail
from model_calls as reply
inner join audited
    on audited.tenant = reply.tenant and audited.trajectory_id = reply.trajectory_id and audited.is_live
left join contexts as context
    on context.tenant = reply.tenant
        and context.trajectory_id = reply.trajectory_id
        and context.sequence_number = reply.context_seq
        and context.sequence_number < reply.sequence_number
left join broken_contexts
    on broken_contexts.tenant = reply.tenant
        and broken_contexts.trajectory_id = reply.trajectory_id
        and broken_contexts.context_seq = reply.context_seq
where in_scope(reply.tenant, reply.started_on)
    and (context.sequence_number is null or broken_contexts.missing is not null)
