-- Q24: data set contains an erased subject
-- proves: no data set built after an erasure contains what was erased; those built before are listed to be cut again
-- clauses: GDPR 17, 19; EDPB 02/2025; EU AI Act 10
-- severity: high
-- grain: one row per data set and erased trajectory
-- applies: all
-- needs: exports
-- inputs: exports, erasures, audited
-- owner: pipelines
-- The newest row of a data set or erasure is its state. A data set that does not list its trajectories is taken to
-- contain every trajectory that had started (fail closed).
with data_sets as (
    select
        export_id,
        max("at") as built_at,
        from_json(arg_max(coalesce(detail, '{}'), "at"), '{"trajectories":[["VARCHAR"]]}').trajectories as members
    from exports
    where kind <> 'evidence'
    group by export_id
),
erased as (
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
erased_trajectories as (
    select audited.tenant, audited.trajectory_id, audited.started_on, min(erased.erased_at) as erased_at
    from erased
    inner join audited
        on audited.tenant = erased.tenant
            and (
                audited.trajectory_id = erased.trajectory_id
                or coalesce(list_contains(audited.subjects, erased.subject), false)
            )
    where in_scope(audited.tenant, audited.started_on) and erased.state <> 'refused'
    group by audited.tenant, audited.trajectory_id, audited.started_on
)
select
    erased.tenant,
    erased.trajectory_id,
    null::bigint as sequence_number,
    null::varchar as action_id,
    data_sets.export_id as object,
    []::bigint[] as related,
    case when data_sets.built_at >= erased.erased_at then 'violation: built after' else 'must_recut: built before' end
    || ' the erasure'
    || case when data_sets.members is null then ' (its trajectories are not recorded)' else '' end as detail
from erased_trajectories as erased
inner join data_sets
    on case
        when data_sets.members is null then cast(data_sets.built_at as date) >= erased.started_on
        else list_contains(data_sets.members, [erased.tenant, erased.trajectory_id])
    end
