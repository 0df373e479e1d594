-- heads_lock: the heads of a batch's trajectories, in one order for everybody, held until the transaction ends.
-- grain: one row per trajectory
-- inputs: trajectory_heads, trajectory_erased
-- owner: ingest
select
    head.tenant,
    head.trajectory_id,
    head.kind,
    head.fencing_token,
    head.next_sequence,
    head.turn,
    (extract(epoch from head.recorded_at) * 1000000)::bigint,
    head.ended,
    head.released,
    head.superseded,
    head.held_back,
    head.conflicts
from unnest(%(tenants)s::text[], %(trajectory_ids)s::text[]) as named (tenant, trajectory_id)
join trajectory_heads as head
    on head.tenant = named.tenant
    and head.trajectory_id = named.trajectory_id
order by head.tenant, head.trajectory_id
for update of head
