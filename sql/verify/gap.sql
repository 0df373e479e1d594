-- gap: places where a trajectory's numbers do not go 0, 1, 2, ... up to the head that its row in trajectories states.
-- grain: one row per violation: tenant, trajectory_id, sequence_number (the row after the gap), detail
-- inputs: events, trajectories
-- owner: pipelines
with numbered as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        coalesce(
            lag(sequence_number) over (partition by tenant, trajectory_id order by sequence_number),
            -1
        ) as before
    from events
),
heads as (
    select
        tenant,
        trajectory_id,
        max(sequence_number) as last_sequence,
        arg_max(cryptographic_hash, sequence_number) as head_hash
    from events
    group by tenant, trajectory_id
)
select
    tenant,
    trajectory_id,
    sequence_number,
    'follows ' || before as detail
from numbered
where sequence_number <> before + 1
union all
select
    tenant,
    trajectory_id,
    coalesce(heads.last_sequence, -1) as sequence_number,
    'the trajectory ends at ' || coalesce(cast(trajectories.last_sequence as varchar), 'nothing')
    || ' with hash ' || coalesce(trajectories.head_hash, 'null') as detail
from trajectories
full outer join heads using (tenant, trajectory_id)
where trajectories.status is distinct from 'expired'
    and (
        heads.last_sequence is distinct from trajectories.last_sequence
        or heads.head_hash is distinct from trajectories.head_hash
    )
