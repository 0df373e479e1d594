-- leave_to_lake: takes an ended trajectory's rows out of the warm tier; the caller knows that a snapshot holds them.
-- grain: a function; the number of rows that went, -1 where the trajectory is not as the lake knows it
-- inputs: trajectory_heads, trajectory_events, trajectory_left, trajectory_blobs, trajectory_blob_refs
-- notes: of_writers and of_lsns say, pair by pair, up to which lsn of which journal the snapshot is known to hold rows.
-- owner: ingest
drop function if exists leave_to_lake(text, text, bigint, bytea, bigint);
create or replace function leave_to_lake(
    of_tenant text, of_trajectory text, last_sequence bigint, head_hash bytea, of_snapshot bigint,
    of_writers text [], of_lsns bigint []
) returns bigint
language plpgsql as $$
declare
    gone bigint;
begin
    -- The head's lock makes an insert under way finish first, and the next one read trajectory_left.
    perform 1 from trajectory_heads
    where tenant = of_tenant and trajectory_id = of_trajectory and ended is not null
        and next_sequence = last_sequence + 1
    for update;
    if not found then
        return -1;
    end if;
    perform 1 from trajectory_left where tenant = of_tenant and trajectory_id = of_trajectory;
    if not found then
        perform 1 from trajectory_events
        where tenant = of_tenant and trajectory_id = of_trajectory and sequence_number = last_sequence
            and cryptographic_hash = head_hash;
        if not found then
            return -1;
        end if;
    end if;
    -- A row may have come since the caller looked, and the head not have moved: a superseded event, a late copy.
    perform 1 from trajectory_events as event
    where event.tenant = of_tenant and event.trajectory_id = of_trajectory
        and not exists (
            select from unnest(of_writers, of_lsns) as held (writer, lsn)
            where held.writer = event.writer and event.lsn <= held.lsn
        );
    if found then
        return -1;
    end if;
    insert into trajectory_left (tenant, trajectory_id, snapshot) values (of_tenant, of_trajectory, of_snapshot)
    on conflict do nothing;
    delete from trajectory_events where tenant = of_tenant and trajectory_id = of_trajectory;
    get diagnostics gone = row_count;
    delete from trajectory_blobs as held
    using trajectory_blob_refs as own
    where own.tenant = of_tenant and own.trajectory_id = of_trajectory
        and held.tenant = own.tenant and held.sha256 = own.sha256
        and not exists (
            select from trajectory_blob_refs as other
            where other.tenant = own.tenant and other.sha256 = own.sha256 and other.trajectory_id <> of_trajectory
        );
    delete from trajectory_blob_refs where tenant = of_tenant and trajectory_id = of_trajectory;
    return gone;
end
$$
