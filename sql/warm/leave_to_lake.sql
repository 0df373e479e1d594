-- leave_to_lake: takes an ended trajectory's rows out of the warm tier; the caller knows that a snapshot holds them.
-- grain: a function; the number of rows that went, -1 where the trajectory is not as the lake knows it
-- inputs: trajectory_heads, trajectory_events, trajectory_left, trajectory_blobs, trajectory_blob_refs
-- owner: ingest
create or replace function leave_to_lake(
    of_tenant text, of_trajectory text, last_sequence bigint, head_hash bytea, of_snapshot bigint
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
