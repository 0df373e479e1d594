-- Q15: sequence gap or duplicate
-- proves: every trajectory's events go 0, 1, 2, ... to the head that its row states, each once
-- clauses: EU AI Act 12(1)-(2), 19; PCI DSS 10.5.1; SOC 2 CC7.2
-- severity: critical
-- grain: one row per place
-- applies: all
-- needs: -
-- inputs: events, trajectories, quarantine, audited
-- owner: pipelines
-- Events that wait behind a gap (held back) and other events under a used number (conflict) are in quarantine.
with totals as (
    select tenant, trajectory_id, count(*) as total, min(sequence_number) as lowest, max(sequence_number) as highest,
        count(distinct sequence_number) as different
    from events
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id
),
broken as (
    select tenant, trajectory_id
    from totals
    where lowest <> 0 or total <> highest + 1 or different <> total
),
steps as (
    select
        event.tenant,
        event.trajectory_id,
        event.sequence_number,
        coalesce(
            lag(event.sequence_number) over (
                partition by event.tenant, event.trajectory_id order by event.sequence_number
            ),
            -1
        ) as before
    from events as event
    semi join broken using (tenant, trajectory_id)
    where in_scope(event.tenant, event.started_on)
),
apart as (
    select quarantine.tenant, quarantine.trajectory_id, quarantine.reason, min(quarantine.sequence_number) as first_seq
    from quarantine
    inner join audited
        on audited.tenant = quarantine.tenant and audited.trajectory_id = quarantine.trajectory_id
    where in_scope(audited.tenant, audited.started_on) and quarantine.reason in ('held_back', 'conflict')
    group by quarantine.tenant, quarantine.trajectory_id, quarantine.reason
)
select
    tenant,
    trajectory_id,
    sequence_number,
    null::varchar as action_id,
    null::varchar as object,
    [before] as related,
    case when sequence_number = before then 'twice' else 'follows ' || before end as detail
from steps
where sequence_number <> before + 1
union all
select
    tenant,
    trajectory_id,
    first_seq as sequence_number,
    null as action_id,
    null as object,
    []::bigint[] as related,
    case reason
        when 'conflict' then 'another event under a used number'
        else 'waits for an event or an opening that is missing'
    end as detail
from apart
union all
select
    stated.tenant,
    stated.trajectory_id,
    coalesce(totals.highest, -1) as sequence_number,
    null as action_id,
    null as object,
    [stated.last_sequence] as related,
    'ends here, its row in trajectories says ' || coalesce(cast(stated.last_sequence as varchar), 'nothing') as detail
from trajectories as stated
left join totals
    on totals.tenant = stated.tenant and totals.trajectory_id = stated.trajectory_id
where in_scope(stated.tenant, stated.started_on)
    and stated.status is distinct from 'expired'
    and totals.highest is distinct from stated.last_sequence
union all
select
    tenant,
    trajectory_id,
    last_event as sequence_number,
    null as action_id,
    null as object,
    []::bigint[] as related,
    'has no row in trajectories' as detail
from audited
where in_scope(tenant, started_on) and not is_stated
