-- Q16a: chain break
-- proves: every event's hash follows from the event before, its envelope and its commitment, and its text from the commitment
-- clauses: EU AI Act 12(1)-(2), 19; PCI DSS 10.5.1; HIPAA 164.312(c); SOC 2 CC7.2
-- severity: critical
-- grain: one row per event and fault
-- applies: all
-- needs: -
-- inputs: events, payload_faults
-- owner: pipelines
with linked as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        cryptographic_hash,
        concat_ws(
            chr(10), sequence_number, event_type, schema_version, fencing_token, turn, epoch_us(recorded_at), commitment
        ) as envelope,
        commitment is null as is_uncommitted,
        case
            when sequence_number = 0
                then sha256(concat_ws(chr(10), 'trajlake chain 1', tenant, trajectory_id))
            else lag(cryptographic_hash) over trajectory
        end as previous_hash,
        sequence_number - lag(sequence_number) over trajectory as step
    from events
    where in_scope(tenant, started_on)
    window trajectory as (partition by tenant, trajectory_id order by sequence_number)
)
select
    tenant,
    trajectory_id,
    sequence_number,
    null::varchar as action_id,
    cryptographic_hash as object,
    case when sequence_number > 0 then [sequence_number - 1] else []::bigint[] end as related,
    'the hash does not follow from the event before, the envelope and the commitment' as detail
from linked
where (sequence_number = 0 or step = 1)
    and (
        is_uncommitted
        or cryptographic_hash is distinct from sha256(concat_ws(chr(10), previous_hash, tenant, trajectory_id, envelope))
    )
union all
select
    tenant,
    trajectory_id,
    sequence_number,
    null as action_id,
    null as object,
    []::bigint[] as related,
    fault as detail
from payload_faults
where in_scope(tenant, started_on)
