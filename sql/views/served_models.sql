-- served_models: which model answered in each trajectory.
-- grain: one row per trajectory with a kept model call
-- inputs: model_calls
-- owner: pipelines
select
    tenant,
    trajectory_id,
    -- `several` where more than one answered: a report by model keeps such runs apart
    case count(distinct served_model) when 0 then 'unknown' when 1 then any_value(served_model) else 'several' end
        as served_model
from model_calls
where status = 'kept'
group by tenant, trajectory_id
