-- Q20: retention violated
-- proves: nothing is kept past its time without a hold, nothing is destroyed before it, nothing under a hold
-- clauses: EU AI Act 19, 26(6); PCI DSS 10.5.1; HIPAA 164.316(b); GDPR 5(1)(e), 17
-- severity: high
-- grain: one row per blob, or per trajectory for its payloads
-- applies: all
-- needs: retention
-- inputs: retention_policy, blob_refs, blobs, payload_counts, holds, erasures, audited, events
-- owner: pipelines
-- parameter: audit_now. Ages count from the newest event that names a blob, or from a trajectory's last event. What an
-- erasure took is not early. A hold of state late found its object already gone.
with hold_states as (
    select
        hold_id,
        arg_max(action, "at") as state,
        any_value(tenant) as tenant,
        max(trajectory_id) as trajectory_id,
        max(subject) as subject,
        min("at") as placed_at
    from holds
    group by hold_id
),
erasure_states as (
    select
        erasure_id,
        arg_max(state, "at") as state,
        any_value(tenant) as tenant,
        max(trajectory_id) as trajectory_id,
        max(subject) as subject,
        min("at") as erased_at
    from erasures
    group by erasure_id
),
kept as (
    select
        audited.tenant,
        audited.trajectory_id,
        audited.started_on,
        audited.is_expired,
        max(hold.placed_at) filter (where hold.state <> 'lift') as held_since,
        coalesce(bool_or(hold.state = 'late'), false) as is_late,
        min(erasure.erased_at) as erased_at
    from audited
    left join hold_states as hold
        on hold.tenant = audited.tenant
            and case
                when hold.trajectory_id is not null then hold.trajectory_id = audited.trajectory_id
                when hold.subject is not null then coalesce(list_contains(audited.subjects, hold.subject), false)
                else true
            end
    left join erasure_states as erasure
        on erasure.tenant = audited.tenant
            and erasure.state <> 'refused'
            and (
                erasure.trajectory_id = audited.trajectory_id
                or coalesce(list_contains(audited.subjects, erasure.subject), false)
            )
    where in_scope(audited.tenant, audited.started_on)
    group by all
),
blob_items as (
    select
        ref.tenant,
        arg_max(ref.trajectory_id, (event.recorded_at, ref.sequence_number)) as trajectory_id,
        arg_max(ref.sequence_number, (event.recorded_at, ref.sequence_number)) as sequence_number,
        ref.sha256 as object,
        max(event.recorded_at) as since,
        bool_or(blobs.sha256 is not null) as is_there,
        max(kept.held_since) as held_since,
        bool_or(kept.is_late) as is_late,
        bool_and(kept.erased_at is not null) as is_erased,
        max(kept.erased_at) as erased_at
    from blob_refs as ref
    inner join kept
        on kept.tenant = ref.tenant and kept.trajectory_id = ref.trajectory_id
    inner join events as event
        on event.tenant = ref.tenant
            and event.trajectory_id = ref.trajectory_id
            and event.sequence_number = ref.sequence_number
            and in_scope(event.tenant, event.started_on)
    left join blobs
        on blobs.tenant = ref.tenant and blobs.sha256 = ref.sha256
    group by ref.tenant, ref.sha256
),
items as (
    select 'blobs' as what, *, not is_there as is_destroyed
    from blob_items
    union all
    select
        'payloads' as what,
        counts.tenant,
        counts.trajectory_id,
        counts.last_event as sequence_number,
        null as object,
        counts.last_event_at as since,
        counts.present > 0 as is_there,
        kept.held_since,
        kept.is_late,
        kept.erased_at is not null as is_erased,
        kept.erased_at,
        counts.absent > 0 as is_destroyed
    from (
        select
            tenant, trajectory_id, sum(present) as present, sum(absent) as absent, max(last_event) as last_event,
            max(last_event_at) as last_event_at
        from payload_counts
        where in_scope(tenant, started_on)
        group by tenant, trajectory_id
    ) as counts
    inner join kept
        on kept.tenant = counts.tenant and kept.trajectory_id = counts.trajectory_id
),
judged as (
    select
        items.*,
        case
            when items.is_destroyed
                and items.held_since is not null
                and not items.is_late
                and coalesce(items.erased_at >= items.held_since, true)
                then 'destroyed_under_hold'
            when items.is_destroyed
                and not items.is_erased
                and policy.minimum_days is not null
                and coalesce(items.since > getvariable('audit_now') - to_days(policy.minimum_days), true)
                then 'destroyed_early'
            when items.is_there
                and items.held_since is null
                and coalesce(items.since < getvariable('audit_now') - to_days(policy.maximum_days), false)
                then 'kept_too_long'
        end as verdict
    from items
    inner join retention_policy as policy
        on policy.what = items.what and policy.tenant in (items.tenant, '*')
)
select
    tenant,
    trajectory_id,
    sequence_number,
    null::varchar as action_id,
    object,
    []::bigint[] as related,
    verdict || ': ' || what || ' since ' || coalesce(cast(since as varchar), 'an unknown time') as detail
from judged
where verdict is not null
