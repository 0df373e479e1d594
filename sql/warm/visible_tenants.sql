-- visible_tenants: the tenants that the role asking may see (also after SET ROLE).
-- grain: a function; one array
-- inputs: tenant_roles
-- owner: ingest
create or replace function visible_tenants() returns text[]
language sql stable
begin atomic
    select coalesce(array_agg(distinct tenant), '{}') from tenant_roles
    where pg_has_role(current_user, role_name, 'member');
end
