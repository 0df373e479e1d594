-- tenant_policies: row-level security on every table that has a tenant; the owner of the tables sees all rows.
-- grain: one policy per table
-- inputs: visible_tenants, tenant_roles
-- owner: ingest
do $$
declare
    name text;
    writer name;
begin
    foreach name in array array[
        'trajectory_events', 'trajectory_tokens', 'trajectory_spans', 'trajectory_heads', 'trajectory_open_items',
        'trajectory_erased', 'trajectory_left', 'trajectory_blobs', 'trajectory_blob_refs', 'trajectory_leases', 'trajectory_mail'
    ] loop
        execute format('alter table %I enable row level security', name);
        execute format('drop policy if exists own_tenants on %I', name);
        execute format(
            'create policy own_tenants on %I using (tenant = any ((select visible_tenants())::text[]))', name
        );
    end loop;
    -- Roles that could write before this table was there read it too.
    for writer in select role_name from tenant_roles where has_table_privilege(role_name, 'trajectory_erased', 'select')
    loop
        execute format('grant select on trajectory_left to %I', writer);
    end loop;
    alter table tenant_roles enable row level security;
    drop policy if exists own_roles on tenant_roles;
    create policy own_roles on tenant_roles using (pg_has_role(current_user, role_name, 'member'));
end
$$
