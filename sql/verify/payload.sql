-- payload: rows whose text is not the text they committed to.
-- grain: one row per violation: tenant, trajectory_id, sequence_number, detail
-- inputs: events
-- owner: pipelines; the formula is rule 2 of the hash chain
select
    tenant,
    trajectory_id,
    sequence_number,
    'committed ' || coalesce(commitment, 'null') as detail
from events
where payload is not null
    and salt is not null
    and commitment is distinct from sha256(concat(salt, chr(10), payload))
