-- Q16b: truncated tail against an anchor
-- proves: every head that an anchor names is still there, with the same hash
-- clauses: EU AI Act 19; PCI DSS 10.5.1; HIPAA 164.312(c); SOC 2 CC7.2
-- severity: critical
-- grain: one row per anchored head
-- applies: all
-- needs: anchor
-- inputs: anchored_heads, events, quarantine, trajectories
-- owner: pipelines
-- An expired trajectory's events are gone on purpose; a head that a later tenure superseded stands in quarantine.
with absent as (
    select head.tenant, head.trajectory_id, head.sequence_number, head.head_hash, head.anchor_id, head.is_outside
    from anchored_heads as head
    anti join events as event
        on event.tenant = head.tenant
            and event.trajectory_id = head.trajectory_id
            and event.sequence_number = head.sequence_number
            and event.cryptographic_hash = head.head_hash
            and in_scope(event.tenant, event.started_on)
    where in_scope(head.tenant, head.started_on)
)
select
    absent.tenant,
    absent.trajectory_id,
    absent.sequence_number,
    null::varchar as action_id,
    absent.anchor_id as object,
    []::bigint[] as related,
    'anchored as the end, with hash ' || left(absent.head_hash, 16) || '..., and absent' as detail
from absent
anti join quarantine
    on quarantine.tenant = absent.tenant
        and quarantine.trajectory_id = absent.trajectory_id
        and quarantine.sequence_number = absent.sequence_number
        and quarantine.cryptographic_hash = absent.head_hash
        and quarantine.reason = 'superseded'
anti join trajectories as expired
    on expired.tenant = absent.tenant
        and expired.trajectory_id = absent.trajectory_id
        and expired.status = 'expired'
qualify row_number() over (
    partition by absent.tenant, absent.trajectory_id, absent.sequence_number, absent.head_hash
    order by absent.is_outside desc, absent.anchor_id
) = 1
