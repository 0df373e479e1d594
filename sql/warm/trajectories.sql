-- trajectories: every trajectory with at least one event here, and what of it does not count.
-- grain: one row per trajectory
-- inputs: trajectory_heads, trajectory_erased
-- owner: ingest
create or replace view trajectories with (security_invoker = true) as
select
    head.tenant,
    head.trajectory_id,
    head.started_on,
    head.model,
    head.kind,
    coalesce(head.ended, 'open') as status,
    head.next_sequence as events,
    head.turn,
    head.recorded_at as last_recorded_at,
    head.fencing_token,
    head.superseded,
    head.held_back,
    head.conflicts,
    head.duplicates
from trajectory_heads as head
