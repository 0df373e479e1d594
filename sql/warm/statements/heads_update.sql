-- heads_update: where the histories of a batch now end.
-- grain: one row per trajectory
-- inputs: trajectory_heads
-- owner: ingest
update trajectory_heads as head
set
    kind = new.kind,
    fencing_token = new.fencing_token,
    next_sequence = new.next_sequence,
    turn = new.turn,
    recorded_at = to_timestamp(new.recorded_at_us / 1000000) + (new.recorded_at_us %% 1000000) * interval '1 microsecond',
    ended = new.ended,
    released = new.released,
    superseded = new.superseded,
    held_back = new.held_back,
    conflicts = new.conflicts,
    duplicates = head.duplicates + new.duplicates,
    model = new.model,
    started_on = new.started_on
from unnest(
    %(tenants)s::text[], %(trajectory_ids)s::text[], %(kinds)s::text[], %(tokens)s::bigint[], %(nexts)s::bigint[],
    %(turns)s::integer[], %(recorded)s::bigint[], %(ended)s::text[], %(released)s::boolean[], %(superseded)s::bigint[],
    %(held_back)s::bigint[], %(conflicts)s::bigint[], %(duplicates)s::bigint[], %(models)s::text[],
    %(started_on)s::date[]
) as new (
    tenant, trajectory_id, kind, fencing_token, next_sequence, turn, recorded_at_us, ended, released, superseded,
    held_back, conflicts, duplicates, model, started_on
)
where head.tenant = new.tenant and head.trajectory_id = new.trajectory_id
