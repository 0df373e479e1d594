-- audited: every trajectory in scope, whether or not its row in trajectories is still there.
-- grain: one row per trajectory
-- inputs: events, trajectories, erasures
-- built: once, before the events are read
-- live: written by a harness of ours and readable, so that every control applies; what an import or a judgement
-- cannot show, and what an erasure took, is not applicable. An unknown kind counts as live (fail closed).
with present as (
    select tenant, trajectory_id, min(started_on) as started_on, max(sequence_number) as last_event
    from events
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id
),
stated as (
    select
        tenant,
        trajectory_id,
        started_on,
        kind,
        status,
        coalesce(payloads_expired, 0) > 0 as lacks_payloads,
        principal,
        last_sequence,
        last_event_at,
        case
            when subjects is null then []::varchar[]
            else coalesce(try_cast(subjects as varchar[]), []::varchar[])
        end as subjects,
        branch_of_trajectory_id is not null as is_branch
    from trajectories
    where in_scope(tenant, started_on)
),
erased as (
    select stated.tenant, stated.trajectory_id
    from stated
    inner join erasures
        on erasures.tenant = stated.tenant
            and erasures.state <> 'refused'
            and (
                erasures.trajectory_id = stated.trajectory_id
                or list_contains(stated.subjects, erasures.subject)
            )
    union
    select tenant, trajectory_id
    from erasures
    where trajectory_id is not null and state <> 'refused'
),
known as (
    select
        coalesce(present.tenant, stated.tenant) as tenant,
        coalesce(present.trajectory_id, stated.trajectory_id) as trajectory_id,
        coalesce(present.started_on, stated.started_on) as started_on,
        coalesce(stated.kind, 'live') as kind,
        stated.status,
        stated.principal,
        stated.subjects,
        stated.last_event_at,
        coalesce(stated.is_branch, false) as is_branch,
        coalesce(stated.status = 'expired' or stated.lacks_payloads, false) as is_expired,
        present.last_event,
        stated.trajectory_id is not null as is_stated
    from present
    full outer join stated
        on stated.tenant = present.tenant and stated.trajectory_id = present.trajectory_id
)
select
    known.*,
    erased.trajectory_id is not null as is_erased,
    erased.trajectory_id is null and not known.is_expired as is_readable,
    known.kind not in ('imported', 'judgement') and erased.trajectory_id is null and not known.is_expired as is_live
from known
left join erased
    on erased.tenant = known.tenant and erased.trajectory_id = known.trajectory_id
