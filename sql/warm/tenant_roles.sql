-- tenant_roles: which database role may see which tenant; row-level security reads it.
-- grain: one row per role and tenant
-- inputs: add_tenant_role
-- owner: ingest
create table if not exists tenant_roles (
    role_name name not null,
    tenant text not null,
    primary key (role_name, tenant)
)
