-- add_tenant_role: lets an existing role see one tenant, and write for it (leases, mail, replica) if asked.
-- grain: a function
-- inputs: tenant_roles
-- owner: ingest
create or replace function add_tenant_role(role_name name, tenant text, writes boolean default false) returns void
language plpgsql as $$
begin
    insert into tenant_roles values (role_name, tenant) on conflict do nothing;
    execute format('grant usage on schema %I to %I', current_schema(), role_name);
    execute format(
        'grant select on events, trajectories, status, approvals_waiting, doubts, tool_events, uncounted_events,'
        ' trajectory_events, trajectory_tokens, trajectory_spans, trajectory_heads, trajectory_open_items,'
        ' trajectory_leases, trajectory_mail, tenant_roles, warm_version to %I', role_name
    );
    if writes then
        execute format(
            'grant select, insert, update, delete on trajectory_events, trajectory_tokens, trajectory_spans,'
            ' trajectory_heads, trajectory_open_items, trajectory_blobs, trajectory_blob_refs, trajectory_leases,'
            ' trajectory_mail to %I', role_name
        );
        execute format('grant select, insert on trajectory_generations to %I', role_name);
        execute format('grant select on trajectory_erased, trajectory_left to %I', role_name);
    end if;
end
$$
