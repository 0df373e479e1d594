-- Q21: obligation open at the end
-- proves: whatever a run owed to somebody was discharged before it ended
-- clauses: ISO 42001 A.6.2.8; SOC 2 CC7.3
-- severity: medium
-- grain: one row per obligation
-- applies: live
-- needs: -
-- inputs: standing, ends
-- owner: pipelines
with last_ends as (
    select tenant, trajectory_id, min(sequence_number) as ended_seq
    from ends
    where in_scope(tenant, started_on)
    group by tenant, trajectory_id
)
select
    obligation.tenant,
    obligation.trajectory_id,
    obligation.sequence_number,
    null::varchar as action_id,
    obligation.subject as object,
    [last_ends.ended_seq] as related,
    'open when the run ended' as detail
from standing as obligation
inner join last_ends
    on last_ends.tenant = obligation.tenant
        and last_ends.trajectory_id = obligation.trajectory_id
        and last_ends.ended_seq > obligation.sequence_number
anti join standing as discharge
    on discharge.tenant = obligation.tenant
        and discharge.trajectory_id = obligation.trajectory_id
        and discharge.event_type = 'ObligationDischarged'
        and discharge.subject = obligation.subject
        and discharge.sequence_number > obligation.sequence_number
        and discharge.sequence_number < last_ends.ended_seq
        and coalesce(last_ends.ended_seq < discharge.void_at, true)
where in_scope(obligation.tenant, obligation.started_on)
    and obligation.event_type = 'ObligationOpened'
    and coalesce(last_ends.ended_seq < obligation.void_at, true)
