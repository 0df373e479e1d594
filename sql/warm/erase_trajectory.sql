-- erase_trajectory: takes the texts of a trajectory away for good; rows, order, hashes and commitments stay.
-- grain: a function; the number of rows that lost their text
-- inputs: trajectory_heads, trajectory_events, trajectory_open_items, trajectory_blobs, trajectory_blob_refs
-- owner: ingest
create or replace function erase_trajectory(of_tenant text, of_trajectory text, at_epoch bigint) returns bigint
language plpgsql as $$
declare
    touched bigint;
begin
    -- The head's lock makes an insert under way finish first, and the next one read trajectory_erased.
    insert into trajectory_heads (tenant, trajectory_id, model, started_on)
    values (of_tenant, of_trajectory, '', '1970-01-01') on conflict do nothing;
    perform 1 from trajectory_heads where tenant = of_tenant and trajectory_id = of_trajectory for update;
    insert into trajectory_erased (tenant, trajectory_id, epoch) values (of_tenant, of_trajectory, at_epoch)
    on conflict do nothing;
    update trajectory_events set payload = null, salt = null, frame = null
    where tenant = of_tenant and trajectory_id = of_trajectory and salt is not null;
    get diagnostics touched = row_count;
    update trajectory_open_items set question = '', requester = null
    where tenant = of_tenant and trajectory_id = of_trajectory;
    delete from trajectory_mail where tenant = of_tenant and trajectory_id = of_trajectory;
    delete from trajectory_blobs as held
    using trajectory_blob_refs as own
    where own.tenant = of_tenant and own.trajectory_id = of_trajectory
        and held.tenant = own.tenant and held.sha256 = own.sha256
        and not exists (
            select from trajectory_blob_refs as other
            left join trajectory_erased as gone
                on gone.tenant = other.tenant and gone.trajectory_id = other.trajectory_id
            where other.tenant = own.tenant and other.sha256 = own.sha256 and gone.tenant is null
        );
    return touched;
end
$$
