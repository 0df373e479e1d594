-- chain: rows whose hash does not follow from the row before and from their own envelope.
-- grain: one row per violation: tenant, trajectory_id, sequence_number, detail
-- inputs: events
-- owner: pipelines; the formula is rule 3 of the hash chain
with linked as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        event_type,
        schema_version,
        fencing_token,
        turn,
        recorded_at,
        commitment,
        cryptographic_hash,
        case
            when sequence_number = 0
                then sha256(concat_ws(chr(10), 'trajlake chain 1', tenant, trajectory_id))
            else lag(cryptographic_hash) over (partition by tenant, trajectory_id order by sequence_number)
        end as previous_hash,
        sequence_number - lag(sequence_number) over (
            partition by tenant, trajectory_id order by sequence_number
        ) as step
    from events
)
select
    tenant,
    trajectory_id,
    sequence_number,
    'stored ' || coalesce(cryptographic_hash, 'null') as detail
from linked
where (sequence_number = 0 or step = 1)
    and cryptographic_hash is distinct from sha256(concat_ws(
        chr(10),
        previous_hash,
        tenant,
        trajectory_id,
        sequence_number,
        event_type,
        schema_version,
        fencing_token,
        turn,
        epoch_us(recorded_at),
        commitment
    ))
